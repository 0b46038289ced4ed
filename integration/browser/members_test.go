package browser

import (
	"fmt"
	"os/exec"
	"testing"

	"xdsrelay/internal/xdstest"

	"github.com/chromedp/chromedp"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// startCluster starts relays with these names as a cluster, with clients at each.
func startCluster(t testing.TB, names []string, clients func(i int) []*corev3.Node) (relays []*xdstest.Relay, leave []func()) {
	files := &fixture{TB: t, dir: t.TempDir()}
	files.clusters("1", "web", "api")
	var join []string
	for range names {
		join = append(join, xdstest.FreeAddress(t))
	}
	var cmds []*exec.Cmd
	for i, name := range names {
		cmds = append(cmds, xdstest.Command(t, "serve", "--config", xdstest.QuickConfig().With(xdstest.Config{
			"name": name, "downstream.drain": "0s", "upstream.node": "node",
			"upstream.origins":  []map[string]any{{"address": "file://" + files.dir, "name": "files"}},
			"aggregation.rules": []map[string]any{{"key": "node.cluster"}},
			"cluster.name":      "demo", "cluster.address": xdstest.FreeAddress(t), "cluster.gossip": join[i],
			"cluster.advertise": "127.0.0.1", "cluster.join": join,
		}).WriteFile(t)))
	}
	relays = xdstest.StartRelays(t, cmds...)
	for i, r := range relays {
		r.WaitMetric(float64(len(names)), "cluster_members", "state", "alive")
		at := &fixture{TB: t, down: r.Address}
		leave = append(leave, at.join(clients(i)...))
	}
	return relays, leave
}

// The page of one member shows all of them: their keys, streams and clients. It names a member that does
// not answer.
func TestMembersOfTheCluster(t *testing.T) {
	t.Parallel()
	names := []string{"one", "two", "three"}
	relays, leave := startCluster(t, names, func(i int) []*corev3.Node {
		return []*corev3.Node{node(fmt.Sprint("a-", i), "edge", ""), node(fmt.Sprint("b-", i), "edge", "")}
	})
	p := (&fixture{TB: t, admin: "http://" + relays[0].Admin}).open()
	p.visit("/")
	p.shows("nav", "Members")
	same := p.marked()
	p.do(chromedp.Click("#members"))
	p.shows("h1", "Members of the cluster")
	p.shows("table", "one (this relay)", "two", "three", "ready")
	p.is("document.querySelectorAll('tbody tr').length === 3")
	p.shows(".tiles", "all answer", "6\nof all members", "1\nowned; 2 times followed, 0 direct")

	eval[bool](p, axe(t)+"\n;true")
	for _, width := range []int64{360, 1280} {
		p.size(width)
		p.is("document.documentElement.scrollWidth <= innerWidth")
		if wrong := eval[[]string](p, findings); len(wrong) > 0 {
			t.Errorf("%d px: %q", width, wrong)
		}
	}

	// The clients of all, then those of one member, then one of these.
	p.do(chromedp.Click(".tiles a[href='clients?members=true']"))
	p.shows("h1", "Clients of all members")
	for i, name := range names {
		p.shows("section[aria-label='Clients of "+name+"']", fmt.Sprint("a-", i), fmt.Sprint("b-", i), "2 clients", "SYNCED")
	}
	p.do(chromedp.SetValue("select[name=state]", "NACKED"), chromedp.Click(".filter button"))
	p.shows("section[aria-label='Clients of two']", "0 clients")
	p.is("location.search === '?state=NACKED&members=true'")
	p.do(chromedp.Click(".filter a"))
	p.do(chromedp.Click("section[aria-label='Clients of two'] h2 a"))
	p.shows("#about", "This is what member two has.")
	p.shows("caption", "2 clients")
	p.do(chromedp.Click(".clients tbody a[href^='node?name=a-1']"))
	p.is("location.search === '?name=a-1&member=two'")
	p.shows("main", "1 open stream", "SYNCED")
	p.do(chromedp.Click("main table a"))
	p.shows("h1", "edge")
	p.shows("#about", "two")
	p.shows(".facts", "In the cluster", "; the owner is ")
	p.shows(".resources", "web", "api")
	p.do(chromedp.Click("#about a"))
	p.shows("h1", "Members of the cluster")
	p.is("document.getElementById('about').hidden")

	p.do(chromedp.Click(".tiles a[href='keys?members=true']"))
	p.shows("section[aria-label='Keys of three']", "edge")
	p.shows("main", "files")
	p.is("['owner', 'follower'].every((r) => document.querySelector('main').textContent.includes(r))")
	p.do(chromedp.Click("h1 a"))
	p.shows("h1", "Keys of all members")
	p.is("location.search === ''")

	same()
	leave[2]()
	relays[2].Kill()
	relays[0].WaitMetric(1, "cluster_members", "state", "dead")
	p.expect("504")
	p.visit("/ui/members")
	p.shows(".problem", "No answer of 1 member.", "member three is dead")
	p.shows("table", "dead")
	p.shows(".tiles", "2\n1 did not answer", "4\nof all members")
	p.visit("/ui/clients?members=true")
	p.shows(".problem", "member three is dead")
	p.shows("section[aria-label='Clients of one']", "a-0")
}

// A relay without a cluster has no view of members.
func TestNoClusterNoMembers(t *testing.T) {
	t.Parallel()
	p := serve(t, nil).open()
	p.visit("/")
	p.shows(".tiles", "0")
	p.is("document.getElementById('members').hidden")
	p.expect("404")
	p.visit("/ui/members")
	p.shows("main", "This relay is in no cluster.")
}
