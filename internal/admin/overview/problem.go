package overview

import "time"

const (
	Error   = "error"   // clients are affected, or will be at the next event
	Warning = "warning" // clients are not affected now
)

// Problem is one problem of the relay itself, for operators. /server_info, relay status and the
// page show the same list. The texts contain no ages, so they stay equal while nothing changes.
type Problem struct {
	Severity string `json:"severity"`
	Text     string `json:"text"`
	// Key is the key that Text names; empty: none.
	Key string `json:"key,omitempty"`
	// Impact is what the problem means for clients. Next is the operator's next step. Both are
	// whole sentences.
	Impact string `json:"impact"`
	Next   string `json:"next"`
	// Since is when it began; Last is when it occurred last. Each is absent if it is not known or
	// means nothing here.
	Since time.Time `json:"since,omitzero"`
	Last  time.Time `json:"last,omitzero"`
}
