package refusal

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/telemetry"
)

// Refusal says why a stream, poll or connection is refused or ended. Metrics count it by its
// reason, and its message goes to the client.
type Refusal struct {
	Code   codes.Code
	Reason telemetry.Reason
	Err    error
	// Key is the key whose clients are all refused. Its error is logged once for the key. Empty: the
	// reason is not the key.
	Key string

	// Node is the beginning of the node's id in the refused request; empty: it is not known, or the
	// stream knows it.
	Node string
}

func (r *Refusal) Error() string { return r.Err.Error() }
func (r *Refusal) Unwrap() error { return r.Err }

// GRPCStatus makes the refusal the stream's status.
func (r *Refusal) GRPCStatus() *status.Status { return status.New(r.Code, r.Error()) }

func New(code codes.Code, reason telemetry.Reason, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Reason: reason, Err: fmt.Errorf(format, args...)}
}
