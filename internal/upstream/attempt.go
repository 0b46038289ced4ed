package upstream

import "xdsrelay/internal/telemetry"

// attemptEnd is what the relay knows about an attempt at an origin that ended. The zero value is a
// failed dial.
type attemptEnd struct {
	opened    bool // the origin accepted a stream
	responded bool // the stream had a response
	suspected bool // the origin may have ended the stream because of a suspect (P68)
	held      bool // the relay holds something of what the stream carried
	others    bool // the origin responds to other streams
}

// reason is why the stream has to be opened again.
func (e attemptEnd) reason() telemetry.Reconnect {
	switch {
	case !e.opened:
		return telemetry.Unreachable
	case e.responded:
		return telemetry.Ended
	}
	return telemetry.NoResponse
}

// failed reports whether the attempt is a failure, of the key and of the origin (P53, P54, P56). A
// stream that ended before any response failed, even with status OK. There are two exceptions while
// the origin responds to other streams: a suspect may be the cause, or the origin had nothing to
// send.
func (e attemptEnd) failed() bool {
	excused := e.opened && e.others && (e.suspected || !e.held)
	return !e.responded && !excused
}
