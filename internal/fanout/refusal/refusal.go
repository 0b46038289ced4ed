package refusal

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/telemetry"
)

// Refusal ends a stream, or refuses one: it is counted by its reason, and its
// message goes to the client.
type Refusal struct {
	Code   codes.Code
	Reason telemetry.Reason
	Err    error
	// Key that is why, whichever of its clients comes: the log says once what is wrong
	// with it. Empty: it is the client.
	Key string

	// Node is the id in the node that came with what is refused, as far as it is known
	// and not too long; empty: the stream knows whose it is.
	Node string
}

func (r *Refusal) Error() string { return r.Err.Error() }
func (r *Refusal) Unwrap() error { return r.Err }

// GRPCStatus makes the refusal the stream's status.
func (r *Refusal) GRPCStatus() *status.Status { return status.New(r.Code, r.Error()) }

// New makes a Refusal.
func New(code codes.Code, reason telemetry.Reason, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Reason: reason, Err: fmt.Errorf(format, args...)}
}
