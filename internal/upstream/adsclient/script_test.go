package adsclient

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// The scripts of testdata/scripts are conversations with an origin, to be read
// beside the protocol's text: what clients want and the origin says stands
// above the line, what the relay sends and then holds below it. `go test
// -rewrite` writes what it does.
//
//	stream delta            the key's first stream
//	interest                all that is wanted from now on:
//	  CDS: *
//	  EDS: a b
//	origin CDS version=7    a response: a, b with content 2; in delta, c is gone
//	  a b=2 -c
//	reconnect [ORIGIN]      the stream broke; the next one, at another origin
//	wait 15s                time goes by
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, file string) {
		datadriven.RunTest(t, file, new(script).run)
	})
}

// script is a protocolFixture with text as input and output.
type script struct {
	*protocolFixture
	held map[xds.TypeURL]string // as printed last
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	var said []string
	switch d.Cmd {
	case "stream":
		v := xds.SotW
		if d.CmdArgs[0].Key == "delta" {
			v = xds.Delta
		}
		s.protocolFixture, s.held = newProtocolFixture(t, v), make(map[xds.TypeURL]string)
	case "interest":
		if !s.want(interestOf(t, d)...) {
			said = append(said, "opens a new stream")
			s.reopen()
		}
	case "origin":
		said = s.response(d)
	case "reconnect":
		if len(d.CmdArgs) > 0 {
			s.origin = d.CmdArgs[0].Key
		}
		s.connect()
	case "wait":
		by, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.pass(by)
	default:
		d.Fatalf(t, "what is %q?", d.Cmd)
	}
	s.t = t
	for req := s.next(); req != nil; req = s.next() {
		said = append(said, "-> "+show(t, s.v, req.bytes()))
	}
	said = append(said, s.news()...)
	if len(said) == 0 {
		return "nothing"
	}
	return strings.Join(said, "\n")
}

func interestOf(t *testing.T, d *datadriven.TestData) (out []snapshot.TypeInterest) {
	for _, l := range strings.Split(strings.TrimSpace(d.Input), "\n") {
		short, names, ok := strings.Cut(l, ":")
		if !ok {
			continue
		}
		typ, known := xds.ParseType(short)
		if !known {
			d.Fatalf(t, "no type: %q", short)
		}
		if in := all(typ); strings.TrimSpace(names) == "*" {
			out = append(out, in)
		} else {
			out = append(out, named(typ, strings.Fields(names)...))
		}
	}
	return out
}

// response makes the relay receive a response.
func (s *script) response(d *datadriven.TestData) (said []string) {
	typ, _ := xds.ParseType(d.CmdArgs[0].Key)
	p := resp{Type: typ}
	for _, a := range d.CmdArgs[1:] {
		if a.Key == "version" {
			p.Version = a.Vals[0]
		}
	}
	for _, spec := range strings.Fields(d.Input) {
		name, content, _ := strings.Cut(spec, "=")
		if gone, ok := strings.CutPrefix(name, "-"); ok {
			p.Removed = append(p.Removed, gone)
			continue
		}
		p.Resources = append(p.Resources, res{Name: name, Content: content, Version: "v" + content})
	}
	v, n := s.respond(p)
	switch {
	case v.NotRequested:
		said = append(said, "was not requested")
	case !v.Accept:
		said = append(said, "NACKed")
	case n.NotRequested > 0:
		said = append(said, fmt.Sprintf("drops %d that were not requested", n.NotRequested))
	}
	return said
}

// news prints the state of the types that changed.
func (s *script) news() (said []string) {
	if s.sink.Interest == nil {
		return nil
	}
	for _, in := range s.sink.Interest.Types {
		if now := s.known(in); now != s.held[in.Type] {
			s.held[in.Type] = now
			said = append(said, fmt.Sprintf("holds %s: %s", xds.TypeOf(in.Type).Label(), strings.TrimSpace(now)))
		}
	}
	return said
}

func (s *script) known(in snapshot.TypeInterest) string {
	snap := s.sink.Newest(in.Type)
	var out []string
	for r := range snap.Resources {
		out = append(out, s.spec(r))
	}
	for name := range in.Names.All() {
		if s.sink.Presence(in.Type, name) == snapshot.Absent {
			out = append(out, "-"+name)
		}
	}
	slices.Sort(out)
	if snap != nil && snap.Answered {
		out = append(out, "(all)")
	}
	return strings.Join(out, " ")
}

// spec prints a resource in the format that response reads.
func (s *script) spec(r *xds.Resource) string {
	for _, content := range []string{"", "2", "33"} {
		body, err := proto.Marshal(res{Name: r.Name, Content: content}.Body(s.t, r.TypeURL()))
		if err != nil {
			s.t.Fatal(err)
		}
		same, err := xds.NewResource(xds.TypeOf(r.TypeURL()), r.Name, body)
		if err == nil && same.Version == r.Version {
			return strings.TrimSuffix(r.Name+"="+content, "=")
		}
	}
	return r.Name + "=?"
}
