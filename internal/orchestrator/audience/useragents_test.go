package audience

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// A script has +name and -name for subscribers that join and leave. After each the state is the
// number of other subscribers and the two names; "-" means that the names do not differ.
func TestUserAgents(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"one kind", "+envoy +envoy -envoy", "- - -"},
		{"no name", "+ +envoy + -envoy -", "- - - - -"},
		{"two kinds", "+envoy +grpc +grpc -grpc -grpc", "- 1:envoy,grpc 2:envoy,grpc 1:envoy,grpc -"},
		{"the first leaves", "+envoy +grpc -envoy", "- 1:envoy,grpc -"},
		{"the first of three leaves", "+a +b +c -a -b", "- 1:a,b 2:a,b 1:b,c -"},
		{"the second of three leaves", "+a +b +c -b +b", "- 1:a,b 2:a,b 1:a,c 2:a,c"},
		{"the third of three leaves", "+a +b +c -c", "- 1:a,b 2:a,b 1:a,b"},
		{"again", "+a +b -b +b", "- 1:a,b - 1:a,b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var u UserAgents
			var got []string
			now := time.Now()
			for _, step := range strings.Fields(c.script) {
				was := u.Mixed != nil
				var changed bool
				if name := step[1:]; step[0] == '+' {
					changed = u.Count(name, 1, now)
				} else {
					changed = u.Count(name, -1, now)
				}
				if is := u.Mixed != nil; changed != (is != was) {
					t.Errorf("%s reports %v", step, changed)
				}
				at := "-"
				if u.Mixed != nil {
					at = strconv.Itoa(u.Others()) + ":" + strings.Join(u.Mixed.Names[:], ",")
				}
				got = append(got, at)
			}
			if got := strings.Join(got, " "); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
