package subscriber

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// cluster is a resource that has a password.
func cluster(t *testing.T, password string) *xds.Resource {
	t.Helper()
	b := xdstest.Must(proto.Marshal(xdstest.Pack(&clusterv3.Cluster{Name: "a", Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
		"x": {Fields: map[string]*structpb.Value{"password": structpb.NewStringValue(password)}}}}})))(t)
	r := xdstest.Must(xds.NewResource(xds.TypeOf(xds.ClusterType), "a", b))(t)
	return r
}

// One message is redacted at a time. Equal ones are redacted once. One that waits for longer than
// maxWait is not shown.
func TestMessagesAreRedactedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRedactor()
		of := func(password string) []*xds.Resource { return []*xds.Resource{cluster(t, password)} }
		const said, want = "hunter2 is no hunter3", "[redacted] is no hunter3"
		if out := r.redact(said, of("hunter2"), true); out != want {
			t.Errorf("%q", out)
		}
		r.slot <- struct{}{} // another message is redacted
		began := time.Now()
		if out := r.redact(said, of("hunter2"), true); out != want || time.Since(began) > 0 {
			t.Errorf("%q after %v, for an equal message", out, time.Since(began))
		}
		var all sync.WaitGroup
		all.Go(func() {
			if out := r.redact(said, of("hunter3"), true); out != "hunter2 is no [redacted]" || time.Since(began) != time.Second {
				t.Errorf("%q after %v, for another resource", out, time.Since(began))
			}
		})
		time.Sleep(time.Second)
		<-r.slot
		all.Wait()
		r.slot <- struct{}{}
		began = time.Now()
		for _, out := range []string{r.redact(said, of("hunter2"), false), r.redact(said+".", of("hunter2"), true)} {
			if out != notRedacted {
				t.Errorf("%q", out)
			}
		}
		if d := time.Since(began); d != 2*maxWait {
			t.Errorf("they waited for %v", d)
		}
		<-r.slot
		for i := range 2 * maxRedacted {
			r.redact(fmt.Sprint(i, strings.Repeat(" long", maxMessage)), nil, true)
		}
		kept := 0
		for _, out := range r.last.Values() {
			kept += len(out)
		}
		if r.last.Len() != maxRedacted || kept > maxRedacted*maxMessage {
			t.Errorf("%d messages of %d bytes are kept", r.last.Len(), kept)
		}
	})
}

// A long message is cut before a blank, so that no half of a secret is shown.
func TestMessageRead(t *testing.T) {
	long := strings.Repeat("a", maxRead-10)
	for said, want := range map[string]string{
		"":                            "",
		"no b":                        "no b",
		long + " no reason":           long + " no reason", // as long as what is read
		long + " no reasons":          long + " no",
		long + " no reason at all":    long + " no reason",
		long + "\nno-reason-at-all":   long,
		long + "a-secret-of-a-client": "",
	} {
		if out := string(MessageRead([]byte(said))); out != want {
			t.Errorf("%d bytes became %d, which end in %.20q", len(said), len(out), out[max(0, len(out)-20):])
		}
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
