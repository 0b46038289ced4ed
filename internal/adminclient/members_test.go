package adminclient

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"xdsrelay/config"
	"xdsrelay/internal/admin/sources"
	"xdsrelay/internal/cluster"
	"xdsrelay/internal/telemetry"
)

// A member that left is not asked, and one that died is asked for a while.
func TestMemberNames(t *testing.T) {
	now := time.Now()
	of := func(name, state string) sources.Member {
		return sources.Member{Member: cluster.Member{Name: name, State: telemetry.MemberState(state), Since: now.Add(-time.Minute)}}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"items": []sources.Member{of("c", "dead"), of("b", "left"), of("a", "alive")}})
	}))
	defer server.Close()
	c, err := New(Options{Address: server.URL}, new(config.Config))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for ignoreDead, want := range map[time.Duration]string{cluster.KeepEnded: "[a c]", time.Second: "[a]", 0: "[a]"} {
		if names, err := c.memberNames(t.Context(), ignoreDead); err != nil || fmt.Sprint(names) != want {
			t.Errorf("%v: %v %v", ignoreDead, names, err)
		}
	}
}
