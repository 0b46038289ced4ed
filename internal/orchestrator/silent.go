package orchestrator

import "context"

// Silent and Recall implement upstream.Sink. What is stored is listed on the first stream
// (P66), so no stream has to end for it.
func (l *link) Silent(context.Context) (end, soon bool, err error) { return false, false, nil }
func (l *link) Recall(context.Context) error                       { return nil }
