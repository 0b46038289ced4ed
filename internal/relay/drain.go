package relay

import (
	"context"
	"time"
)

// closeTimeout is how long clients have to read the end of their streams before the relay closes
// their connections.
const closeTimeout = 2 * time.Second

// drain ends the streams over the configured time, and then stops the server.
func (r *Relay) drain(abort context.Context) {
	over := r.active.Load().cfg.Downstream.Drain
	r.log.Info("draining", "over", over.String())
	r.Admin.SetReady(false)
	r.metrics.Ready.Set(0)
	r.health.Shutdown()
	if r.Member != nil {
		r.Member.cluster.SetDraining(true)
		r.Member.server.RefuseStreams()
		defer r.Member.drain(abort)
	}
	began := time.Now()
	// It closes the listeners and sends GOAWAY at once. So a client whose stream ends opens the
	// next one at another replica.
	done := make(chan struct{})
	go func() { r.grpc.GracefulStop(); close(done) }()
	told, left := r.fanout.Drain(abort, over)
	abort, cancel := context.WithTimeout(abort, closeTimeout)
	defer cancel()
	select {
	case <-done:
	case <-abort.Done():
		r.stopClients()
	}
	args := []any{"streams", told + left, "took", time.Since(began).Round(time.Millisecond).String()}
	if left > 0 { // abort ended
		args = append(args, "at_once", left)
	}
	r.log.Info("drained", args...)
}

// stopClients closes the connections of all clients. grpc's Stop waits for connections in
// their handshake, which may take 20 s. The process ends before that.
func (r *Relay) stopClients() {
	done := make(chan struct{})
	go func() { r.grpc.Stop(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Second):
	}
}
