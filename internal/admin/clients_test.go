package admin

import (
	"slices"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/xds"
)

// The filters of /clients select the same types together, and the worst client comes first.
func TestClientFilters(t *testing.T) {
	r := serve(t, nil)
	now := time.Unix(1_700_000_000, 0)
	cds, eds, rds := string(xds.ClusterType), string(xds.EndpointType), string(xds.RouteType)
	typ := func(url, key, state string, age time.Duration) inspect.TypeStatus {
		return inspect.TypeStatus{Type: url, Key: key, State: state, Since: now.Add(-age)}
	}
	r.shown.clients = []inspect.ClientStatus{
		{Stream: 1, UserAgent: "envoy", UserAgentVersion: "1.40.0", Types: []inspect.TypeStatus{typ(cds, "a", inspect.StateSynced, 0), typ(eds, "a", inspect.StateStale, time.Second)}},
		{Stream: 2, UserAgent: "envoy", Types: []inspect.TypeStatus{typ(cds, "b", inspect.StateNacked, time.Second)}},
		{Stream: 3, Node: "z", UserAgent: "gRPC Go", Types: []inspect.TypeStatus{typ(cds, "b", inspect.StateNacked, time.Minute), typ(eds, "a", inspect.StateSynced, 0)}},
		{Stream: 4, Since: now},
		{Stream: 5, Node: "a", Types: []inspect.TypeStatus{typ(rds, "c", inspect.StateNacked, time.Hour), typ(eds, "c", inspect.StateSynced, 0)}},
	}
	for query, want := range map[string][]uint64{
		"":                             {1, 2, 3, 4, 5},
		"state=NACKED":                 {2, 3, 5},
		"state=stale,not_sent":         {1, 4},
		"state=SYNCED":                 {}, // each client has one state, the worst of its types
		"state=SYNCED&type=CDS":        {1},
		"state=SYNCED&key=a":           {3},
		"state=SYNCED&key=c":           {},
		"state=SYNCED&key=c&type=EDS":  {5},
		"state=STALE&type=CDS":         {},
		"type=EDS":                     {1, 3, 5},
		"key=a":                        {1, 3},
		"key=b&state=SYNCED":           {},
		"user_agent=envoy":             {1, 2},
		"user_agent=envoy+1.40.0":      {1},
		"user_agent=gRPC+Go&state=any": nil,
		"sort=worst":                   {5, 3, 2, 1, 4},
		"sort=worst&type=EDS":          {1, 5, 3}, // those that are SYNCED by their nodes
		"sort=best":                    nil,
		"type=XYZ":                     nil,
	} {
		if want == nil {
			r.want(400, "GET", "/clients?"+query, nil)
			continue
		}
		have := []uint64{}
		for token := ""; ; { // page by page
			var got struct {
				Items []inspect.ClientStatus
				Next  string `json:"next_page_token"`
				Total *int
			}
			r.get("/clients?limit=1&page_token="+token+"&"+query, &got)
			for _, c := range got.Items {
				have = append(have, c.Stream)
			}
			if strings.Contains(query, "sort") != (got.Total != nil) || got.Total != nil && *got.Total != len(want) {
				t.Errorf("%s: total %v", query, got.Total)
			}
			if token = got.Next; token == "" {
				break
			}
		}
		if !slices.Equal(have, want) {
			t.Errorf("%s has streams %v, want %v", query, have, want)
		}
	}
	// A page token of one order is none of the other.
	var first struct {
		Next string `json:"next_page_token"`
	}
	r.get("/clients?limit=1", &first)
	r.want(400, "GET", "/clients?limit=1&sort=worst&page_token="+first.Next, nil)
}
