package demo

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"xdsrelay/config"
	"xdsrelay/internal/filewatch"
	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xds"
)

// output prints the demo's output. The clients call its hooks, on their goroutines.
type output struct {
	out         io.Writer
	admin, down string
	clients     int

	mu       sync.Mutex
	began    time.Time
	n        int       // of the change
	since    time.Time // the change
	typ      xds.TypeURL
	version  string
	took     []time.Duration
	nacks    []string
	answered chan struct{} // closed when all clients answered the change
	routes   int           // changes of the routes so far
}

func newOutput(out io.Writer, admin, down string, clients int) *output {
	return &output{out: out, admin: admin, down: down, clients: clients, began: time.Now()}
}

func (d *output) printf(format string, args ...any) {
	// A terminal that has gone away is no reason to stop.
	_, _ = fmt.Fprintf(d.out, format, args...)
}

func (d *output) start(origin string) {
	d.printf(`origin    %s  (a directory of files, which you may change)
          The relay reads a change when the files have stayed the same for %[7]v.
relay     %[2]s  (gRPC: point an Envoy or a gRPC client here)
clients   %[3]d, half SotW and half delta

look      http://%[4]s/ in a browser
          %[5]s status%[6]s                  the state of each client
          %[5]s nacks%[6]s                   the responses that clients rejected
          %[5]s diff edge-000%[6]s           the resources that a client rejected, as a diff
          curl -s http://%[4]s/metrics | grep -E '^xdsrelay_(%[8]s)[ {]' | grep -v ' 0$'

`, origin, d.down, d.clients, d.admin, os.Args[0], d.adminFlag(), filewatch.Quiet, metrics)
}

// metrics are the metrics to look at first, without their prefix.
const metrics = "ready|keys|stale_types|upstream_streams|upstream_away|upstream_silent_streams|" +
	"downstream_streams|downstream_types|downstream_nacks_total|refused_total"

// adminFlag is the flag with which commands find the demo's relay; empty: the default finds it.
func (d *output) adminFlag() string {
	if d.admin == config.Default().Admin.Address {
		return ""
	}
	return " --admin " + d.admin
}

// ready prints that every client has its configuration.
func (d *output) ready(f *fleet.Fleet) {
	d.printf("%5.1fs  all %d clients have their configuration\n", time.Since(d.began).Seconds(), len(f.Clients()))
}

// begin starts a change. The channel is closed when all clients answered it.
func (d *output) begin(typ xds.TypeURL, version string) (answered <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.n++
	d.typ, d.version, d.took, d.nacks, d.answered = typ, version, nil, nil, make(chan struct{})
	if typ == xds.RouteType {
		d.routes++
	}
	d.since = time.Now()
	return d.answered
}

// closeIfAnswered is called after each answer, with mu held.
func (d *output) closeIfAnswered() {
	if len(d.took)+len(d.nacks) == d.clients {
		close(d.answered)
	}
}

// odd reports whether the client nacker NACKs the newest change of the routes.
func (d *output) odd() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.routes%2 == 1
}

func (d *output) changed(n int, what string) {
	d.printf("%5.1fs  change %d: %s\n", time.Since(d.began).Seconds(), n, what)
}

// applied is fleet's hook for an accepted response.
func (d *output) applied(_ *fleet.Client, t xds.TypeURL, version string, received time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t == d.typ && version == d.version {
		d.took = append(d.took, received.Sub(d.since))
		d.closeIfAnswered()
	}
}

// rejected is fleet's hook for a NACK.
func (d *output) rejected(c *fleet.Client, t xds.TypeURL, version string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t == d.typ && version == d.version {
		d.nacks = append(d.nacks, fmt.Sprintf("%s rejected it: %v", c.ID(), err))
		d.closeIfAnswered()
	}
}

// report prints how the clients answered the last change.
func (d *output) report() {
	d.mu.Lock()
	took, nacks := slices.Sorted(slices.Values(d.took)), d.nacks
	d.mu.Unlock()
	says := []string{fmt.Sprintf("%d of %d clients accepted it", len(took), d.clients)}
	if len(took) > 0 {
		says[0] += fmt.Sprintf(", half of them within %.1f ms, the last after %.1f ms", ms(took[len(took)/2]), ms(took[len(took)-1]))
	}
	says = append(says, nacks...)
	if late := d.clients - len(took) - len(nacks); late > 0 {
		says = append(says, fmt.Sprintf("%d have not answered yet", late))
	}
	d.printf("        %s\n", strings.Join(says, "; "))
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// end prints the totals.
func (d *output) end(f *fleet.Fleet) {
	d.mu.Lock()
	n := d.n
	d.mu.Unlock()
	d.printf("\n%d changes; ", n)
	printTotals(d.out, f)
}
