package fanout

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"xdsrelay/internal/telemetry"
)

// Who is sent away is counted by reason for a minute, with the last one's words, and
// then forgotten.
func TestWhoIsSentAwayLately(t *testing.T) {
	var s sentAways
	now := time.Unix(1e9, 0)
	if got := s.status(now); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	unmapped := Refuse(codes.PermissionDenied, telemetry.Unmapped, "no rule")
	unreached := Refuse(codes.Unavailable, telemetry.OriginUnreachable, "%s", strings.Repeat("ä", maxSentAwayText))
	unreached.Key = "edge"
	s.note(unmapped, "a", now)
	now = now.Add(refusalEvery)
	s.note(unmapped, "b", now)
	s.note(unreached, "c", now)
	want := []SentAway{
		{Reason: "unmapped", Count: 2, Node: "b", Error: "no rule", At: now},
		{Reason: "origin_unreachable", Count: 1, Node: "c", Key: "edge", Error: strings.Repeat("ä", maxSentAwayText/2), At: now},
	}
	if got := s.status(now); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	now = now.Add(refusalEvery)
	want[0].Count = 1
	want[0], want[1] = want[1], want[0] // as many of each: by name
	if got := s.status(now); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := s.status(now.Add(refusalEvery)); len(got) != 0 {
		t.Errorf("%+v are known of a minute ago", got)
	}
	s.note(unmapped, "d", now.Add(24*time.Hour))
	if got := s.status(now.Add(24 * time.Hour)); len(got) != 1 || got[0].Count != 1 {
		t.Errorf("%+v", got)
	}
}
