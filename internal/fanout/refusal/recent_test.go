package refusal

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"xdsrelay/internal/telemetry"
)

// Refusals are counted by reason for a minute, with the message of the last one.
func TestRecent(t *testing.T) {
	var s recent
	now := time.Unix(1e9, 0)
	if got := s.list(now); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	unmapped := New(codes.PermissionDenied, telemetry.Unmapped, "no rule")
	unreached := New(codes.Unavailable, telemetry.OriginUnreachable, "%s", strings.Repeat("ä", maxText))
	unreached.Key = "edge"
	s.note(unmapped, "a", now)
	now = now.Add(recentHalf)
	s.note(unmapped, "b", now)
	s.note(unreached, "c", now)
	want := []Recent{
		{Reason: "unmapped", Count: 2, Node: "b", Error: "no rule", At: now},
		{Reason: "origin_unreachable", Count: 1, Node: "c", Key: "edge", Error: strings.Repeat("ä", maxText/2), At: now},
	}
	if got := s.list(now); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	now = now.Add(recentHalf)
	want[0].Count = 1
	want[0], want[1] = want[1], want[0] // as many of each: by name
	if got := s.list(now); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := s.list(now.Add(recentHalf)); len(got) != 0 {
		t.Errorf("%+v are known of a minute ago", got)
	}
	s.note(unmapped, "d", now.Add(24*time.Hour))
	if got := s.list(now.Add(24 * time.Hour)); len(got) != 1 || got[0].Count != 1 {
		t.Errorf("%+v", got)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
