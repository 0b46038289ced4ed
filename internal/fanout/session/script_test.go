package session

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// The scripts of testdata/scripts are conversations with one session, to be read beside the
// protocol's text. Above the line is what the origin or the client sends. Below it is what
// the relay sends in return. `go test -rewrite` writes what it does send.
//
//	session CDS delta       one type on one stream
//	origin                  what the origin sends of it, in the group:
//	  wildcard: a b=2 -c      its answer to the wildcard: a, b with content 2; c is gone
//	  part: a b               a part of that answer; more may follow
//	  again:                  what follows is under a new version, even if it is equal (P15)
//	  complete:               that answer counts as complete (P67)
//	  settled:                what it lacks counts as gone (P67)
//	  ended:                  the origin's stream has ended
//	  names: a -c             its answers to names
//	client                  a request:
//	  names: * a              resource_names; alone: none (SotW)
//	  subscribe: a            resource_names_subscribe
//	  unsubscribe: *          resource_names_unsubscribe
//	  versions: a b=2 c=?     initial_resource_versions: those of these resources, or another
//	  version: 7              version_info
//	  ack: 2                  with the nonce of response 2
//	  nack: 2                 and with error_detail
//	  nonce: 9                another nonce
//	wait 15s                time passes
//	later yes               a type that is sent after this one has something newer to send (P19)
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, file string) {
		datadriven.RunTest(t, file, new(script).run)
	})
}

// script is a sessionFixture that reads and writes text.
type script struct {
	*sessionFixture
	asks string // as last printed
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	var said []string
	switch d.Cmd {
	case "session":
		typ, _ := xds.ParseType(d.CmdArgs[0].Key)
		v := xds.SotW
		if d.CmdArgs[1].Key == "delta" {
			v = xds.Delta
		}
		s.sessionFixture, s.asks = newSessionFixture(t, typ, v), ""
	case "origin":
		s.Pushed = false
		for _, l := range lines(d) {
			switch l.key {
			case "again":
				s.Pushed = true
			case "part":
				s.part(l.values...)
			case "complete":
				s.Complete()
			case "settled":
				s.Settle()
			case "ended":
				s.Builder.StreamEnded()
				s.Publish()
			default:
				s.origin(l.key == "wildcard", l.values...)
			}
		}
	case "client":
		said = s.client(d)
	case "wait":
		by, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.Pass(by)
	case "later":
		s.later = d.CmdArgs[0].Key == "yes"
	default:
		d.Fatalf(t, "what is %q?", d.Cmd)
	}
	s.T = t
	for {
		response := s.next()
		if response == "" {
			break
		}
		out := fmt.Sprintf("-> %s  nonce %d", response, s.seq)
		if len(s.follow) > 0 {
			out += "  load assignments follow: " + strings.Join(s.follow, " ")
		}
		said = append(said, out)
	}
	if len(said) == 0 {
		return "nothing"
	}
	return strings.Join(said, "\n")
}

// client sends a request, and describes its outcome.
func (s *script) client(d *datadriven.TestData) (said []string) {
	var r request
	number := func(l line) int {
		n, err := strconv.Atoi(l.values[0])
		if err != nil {
			d.Fatalf(s.T, "%v", err)
		}
		return n
	}
	for _, l := range lines(d) {
		switch l.key {
		case "names", "subscribe":
			r.names = l.values
		case "unsubscribe":
			r.unsub = l.values
		case "versions":
			r.initial = make(map[string]string)
			for _, spec := range l.values {
				name, content, _ := strings.Cut(spec, "=")
				r.initial[name] = s.Resource(spec).Version.String()
				if content == "?" {
					r.initial[name] = "another"
				}
			}
		case "version":
			r.version = l.values[0]
		case "ack":
			r.ack = number(l)
		case "nack":
			r.nack = number(l)
		case "nonce":
			r.nonce = uint64(1000 + number(l))
		default:
			d.Fatalf(s.T, "what is %q?", l.key)
		}
	}
	switch out := s.send(r); out.Answer {
	case Acked:
		said = append(said, fmt.Sprintf("acknowledges %d", r.ack))
	case Nacked:
		said = append(said, fmt.Sprintf("refuses %d", r.nack))
	case Stale:
		said = append(said, "stale")
	case UnknownNonce:
		said = append(said, "refuses what this stream never sent")
	}
	if asks := describeSub(s.s.sub.requested); asks != s.asks {
		s.asks = asks
		said = append(said, "asks for "+asks)
	}
	return said
}

func describeSub(sub *snapshot.Subscription) string {
	out := slices.Sorted(sub.Names.All())
	if sub.Wildcard {
		out = slices.Insert(out, 0, "*")
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, " ")
}

// line is "key: values" of a command's input.
type line struct {
	key    string
	values []string
}

func lines(d *datadriven.TestData) (out []line) {
	for _, l := range strings.Split(strings.TrimSpace(d.Input), "\n") {
		if key, values, ok := strings.Cut(l, ":"); ok {
			out = append(out, line{key, strings.Fields(values)})
		}
	}
	return out
}
