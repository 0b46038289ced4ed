package relay

import (
	"path/filepath"
	"strings"
	"testing"

	"xdsrelay/config"
	"xdsrelay/internal/validation"
)

// A reload does not check an origin's directory that the relay follows: if it fails later, rules
// can still change.
func TestReloadOpensNothingAgain(t *testing.T) {
	g := newReloadFixture(t, "")
	cfg := *g.r.active.Load().cfg
	cfg.Upstream.Origins = []config.Origin{{Address: "file://" + filepath.Join(g.dir, "token")}} // as if a file stood there now
	if _, err := validation.Check(&cfg, nil, &cfg); err != nil {
		t.Error(err)
	}
	if _, err := validation.Check(&cfg, nil, g.r.cfg); err == nil || !strings.Contains(err.Error(), "upstream.origins[0].address") {
		t.Errorf("%v", err)
	}
}
