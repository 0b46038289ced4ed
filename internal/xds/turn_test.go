package xds

import (
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// Large nodes that are decoded at once are half as many as there are cores; small ones wait
// for nobody.
func TestLargeNodesAtATime(t *testing.T) {
	m := someNode()
	m.Metadata.Fields["large"] = structpb.NewStringValue(strings.Repeat("x", largeNode))
	large, small := &Node{raw: marshal(t, m)}, &Node{raw: marshal(t, someNode())}
	most, in, leave := largeAtATime, make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	for range most + 3 {
		all.Go(func() {
			if err := large.With(func(m *corev3.Node) error {
				if m.Id != "n1" {
					t.Errorf("node %q", m.Id)
				}
				in <- struct{}{}
				<-leave
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	for range most {
		<-in
	}
	if err := small.With(func(*corev3.Node) error { return nil }); err != nil {
		t.Error(err)
	}
	select {
	case <-in:
		t.Errorf("more than %d at a time", most)
	case <-time.After(50 * time.Millisecond):
	}
	close(leave)
	for range 3 {
		<-in
	}
	all.Wait()
}
