package fanout

import (
	"google.golang.org/grpc/codes"

	"xdsrelay/internal/fanout/member"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/telemetry"
)

// The types of the interface to the groups, for packages that use both.
type (
	Source  = member.Source
	Join    = member.Join
	Member  = member.Member
	Waker   = member.Waker
	Nack    = member.Nack
	KeyOf   = member.KeyOf
	Change  = member.Change
	Refusal = refusal.Refusal
)

// Refuse makes a Refusal.
func Refuse(code codes.Code, reason telemetry.Reason, format string, args ...any) *Refusal {
	return refusal.New(code, reason, format, args...)
}
