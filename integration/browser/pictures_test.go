package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"xdsrelay/internal/xdstest"

	"github.com/chromedp/chromedp"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

var demoAdmin = regexp.MustCompile(`http://\S+?:\d+`)

// demo runs `relay demo` until the test ends, and returns a fixture with its admin address.
func demo(t testing.TB) *fixture {
	t.Helper()
	found := make(chan string, 1)
	p := xdstest.StartProcess(t, "relay demo", xdstest.Command(t, "demo", "--clients", "240"), func(line string) {
		if at := demoAdmin.FindString(line); at != "" {
			select {
			case found <- at:
			default: // it was found before
			}
		}
	})
	t.Cleanup(p.Stop)
	select {
	case at := <-found:
		return &fixture{TB: t, admin: at}
	case <-p.Exited():
		t.Fatal("the demo did not start")
		return nil
	}
}

// Pictures of the demo and of a cluster, for the documentation.
func TestPictures(t *testing.T) {
	dir := os.Getenv("PAGE_SHOTS")
	if dir == "" {
		t.Skip("PAGE_SHOTS names no directory for the pictures; make screenshots does")
	}
	w := demo(t)
	p := w.open()
	p.visit("/ui/key?name=edge%2Feu-1&type=RDS")
	p.is("document.querySelectorAll('section[aria-label=Versions] tbody tr').length >= 4")
	members, _ := startCluster(t, []string{"relay-0", "relay-1", "relay-2"}, func(i int) []*corev3.Node {
		var nodes []*corev3.Node
		for j := range 12 - 2*i {
			nodes = append(nodes, node(fmt.Sprintf("edge-%d-%d", i, j), fmt.Sprint("edge-", j%5), ""))
		}
		return nodes
	})
	ofCluster := (&fixture{TB: t, admin: "http://" + members[0].Admin}).open()
	for _, v := range []struct {
		name, path string
		width      int64
		ready      func()
	}{
		{"members", "/ui/members", 1280, func() { ofCluster.shows("table", "relay-2", "ready") }},
		{"fleet", "/", 1280, func() {
			p.is("document.querySelector('.past path') && document.querySelector('.flow .nacked')")
		}},
		{"key", "/ui/key?name=edge%2Feu-1&type=RDS", 1280, func() { p.shows(".resources", "ingress"); p.is("document.querySelector('.curve .line')") }},
		{"nacks", "/ui/nacks", 1280, func() {
			p.is("!document.getElementById('nacked').hidden")
			p.do(chromedp.Click(".cards summary"))
			p.shows(".difference", "timeout")
		}},
		{"where", "/ui/where", 1280, func() {
			p.do(chromedp.Click("button.plain"))
			p.shows("#explained", "edge/eu-1")
		}},
		{"telephone", "/", 390, func() { p.is("document.querySelector('.flow .synced')") }},
	} {
		p := p
		if v.name == "members" {
			p = ofCluster
		}
		for _, scheme := range []string{"light", "dark"} {
			p.size(v.width)
			p.prefers(scheme)
			p.visit(v.path)
			p.shows("#live", "live")
			v.ready()
			ctx, cancel := context.WithTimeout(p.ctx, xdstest.Patience)
			png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
			cancel()
			if err == nil {
				png, err = small(png)
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, v.name+"-"+scheme+".png"), png, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}
