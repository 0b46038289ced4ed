package upstream

import (
	"fmt"
	"testing"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// What an origin sends unasked is dropped and named in the log, once for each type.
func TestP65_UnaskedResourcesAreLoggedOnce(t *testing.T) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		t.Run(v.String(), func(t *testing.T) {
			log := new(xdstest.Log)
			f := startFake(t)
			r := startRelay(t, v, Options{Log: log.Logger()}, f.address)
			r.stream(named(eds, "a"))
			s := f.next()
			s.request()
			for i := range 3 {
				version := fmt.Sprint(i)
				s.send(resp{Type: cds, Version: version, Resources: clusters("c")})
				s.send(resp{Type: eds, Version: version, Resources: []res{{Name: "a", Content: version, Version: version}, {Name: "b", Content: version, Version: version}}})
				s.request()
			}
			for _, want := range []string{"CDS name=c\n", "EDS name=b\n"} {
				if got := log.Count("type=" + want); got != 1 {
					t.Errorf("%d lines with %s: %s", got, want, log)
				}
			}
		})
	}
}

// The number of types in the log is bounded.
func TestP65_LogOfUnrequestedTypesIsBounded(t *testing.T) {
	log := new(xdstest.Log)
	s := newOrigin(OriginOptions{Name: "o"}, nil, log.Logger())
	for i := range 2 * maxUnasked {
		s.logUnasked("k", xds.TypeURL(fmt.Sprintf("t%03d", i)), "n")
	}
	if got := log.Count("relay dropped"); got != maxUnasked {
		t.Errorf("%d lines", got)
	}
}
