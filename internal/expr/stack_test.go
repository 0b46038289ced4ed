package expr

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// The goroutine of a stream that waits after an expression keeps a small stack: 10,000 streams with
// CEL's stack would use 80 MB more.
func TestStackOfTheCaller(t *testing.T) {
	p, err := NewIdentity(`node.id.startsWith("n") && node.cluster in ["a", "b"]`)
	if err != nil {
		t.Fatal(err)
	}
	stacks := func() uint64 {
		runtime.GC() // it shrinks stacks
		s := []metrics.Sample{{Name: "/memory/classes/heap/stacks:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	before := stacks()
	const n = 500
	var evaluated, ended sync.WaitGroup
	evaluated.Add(n)
	wait := make(chan struct{})
	for range n {
		ended.Go(func() {
			if ok, err := p.Eval(Input{Node: &corev3.Node{Id: "n", Cluster: "b"}}); !ok || err != nil {
				t.Error(ok, err)
			}
			evaluated.Done()
			<-wait
		})
	}
	evaluated.Wait()
	if each := int64(stacks()-before) / n; each > 5<<10 {
		t.Errorf("a goroutine that waits has %d bytes of stack", each)
	}
	close(wait)
	ended.Wait()
}
