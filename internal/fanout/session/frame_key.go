package session

import (
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// FrameKey identifies a response of one snapshot that sessions share: sessions with equal keys are
// sent the same. It has the generation of the snapshot that they were sent before, and no pointer,
// so that a frame keeps no old snapshot alive.
type FrameKey struct {
	form         xds.ResourceFormat
	full, force  bool
	allNew       bool // everything in it is new to the client, so all followers are sent too (P37)
	sub, sentBy  *snapshot.Subscription
	lineage, gen uint64
	renewals     renewalKey
}

// key identifies the difference between what the client was sent and what it is to have.
func (p planner) key() FrameKey {
	s := p.s
	k := FrameKey{form: s.form, full: s.fullState(), sub: s.sub.effective, sentBy: s.delivered.sentBy(s.sub.effective), renewals: p.renewalKey(p.At)}
	if sent := s.delivered.snapshot; sent != nil {
		k.lineage, k.gen = sent.Lineage, sent.Gen
	}
	return k
}

// Shared reports whether other sessions may have an equal Key, and then send the same.
func (p *Plan) Shared() bool { return p.do == shared && !p.Key.sub.Unshared.Load() }
