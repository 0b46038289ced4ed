//go:build linux

package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"google.golang.org/grpc"
)

// Signals on which an origin's process takes streams, reads what it is asked, and says
// nothing, and on which it goes on.
const (
	mute   = syscall.SIGUSR1
	unmute = syscall.SIGUSR2
)

// mouth is what an origin says its responses with.
type mouth struct {
	mu   sync.Mutex
	open chan struct{} // closed while it is
}

func newMouth() *mouth {
	m := &mouth{open: make(chan struct{})}
	close(m.open)
	return m
}

// follow follows the signals until ctx ends.
func (m *mouth) follow(ctx context.Context) {
	told := make(chan os.Signal, 2)
	signal.Notify(told, mute, unmute)
	defer signal.Stop(told)
	shut := false
	for {
		var s os.Signal
		select {
		case s = <-told:
		case <-ctx.Done():
			return
		}
		m.mu.Lock()
		switch {
		case s == mute && !shut:
			m.open = make(chan struct{})
		case s == unmute && shut:
			close(m.open)
		}
		shut = s == mute
		m.mu.Unlock()
	}
}

func (m *mouth) intercept(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(srv, spoken{ss, m})
}

// spoken is a stream whose responses wait until the mouth is open.
type spoken struct {
	grpc.ServerStream
	by *mouth
}

func (s spoken) SendMsg(m any) error {
	s.by.mu.Lock()
	open := s.by.open
	s.by.mu.Unlock()
	select {
	case <-open:
		return s.ServerStream.SendMsg(m)
	case <-s.Context().Done():
		return s.Context().Err()
	}
}
