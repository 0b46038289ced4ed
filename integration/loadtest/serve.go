//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
)

// Commands to servers.
const (
	doPrepare     = "prepare"     // make generation N
	doPush        = "push"        // serve it from now on
	doStats       = "stats"       // report the allocated bytes
	doCollect     = "collect"     // collect garbage, and return free memory
	doProfile     = "profile"     // write a CPU profile to Path, until doEndProfile
	doEndProfile  = "profiled"    // end the CPU profile
	doHeapProfile = "heap"        // write a heap profile to Path
	doArrive      = "arrive"      // to clients: connect
	doStop        = "stop"        // to clients: stop reading
	doRead        = "read"        // read again
	doNewest      = "newest"      // to clients that count it: wait until all have version N
	doAcknowledge = "acknowledge" // acknowledge each response N times from now on
	doAwait       = "await"       // to clients: wait until all have generation N
)

// listen opens the port of a server. Keepalive is off, as in the relay.
func listen() (net.Listener, error) {
	lc := net.ListenConfig{KeepAlive: -1}
	return lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
}

// prepare makes generation n, and returns the function that serves it. Making the clusters is not
// part of the fan-out.
type prepare func(n int) (push func() error, err error)

// now prepares and pushes.
func (p prepare) now(n int) error {
	push, err := p(n)
	if err != nil {
		return err
	}
	return push()
}

// obeyAsServer answers the commands that all servers take.
func obeyAsServer(l net.Listener, prepare prepare) error {
	var profile *os.File
	push := func() error { return errors.New("nothing was prepared") }
	return obey(reply{Addr: l.Addr().String()}, func(c command) (reply, error) {
		switch c.Do {
		case doPrepare:
			next, err := prepare(c.N)
			if err == nil {
				push = next
			}
			return reply{}, err
		case doPush:
			return reply{}, push()
		case doStats:
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return reply{Bytes: m.TotalAlloc, Heap: heap{
				Used: float64(m.HeapAlloc), Stacks: float64(m.StackInuse),
				Free: float64(m.HeapSys - m.HeapReleased - m.HeapAlloc),
			}}, nil
		case doCollect:
			debug.FreeOSMemory()
			return reply{}, nil
		case doProfile:
			f, err := os.Create(c.Path)
			if err != nil {
				return reply{}, err
			}
			profile = f
			return reply{}, pprof.StartCPUProfile(f)
		case doHeapProfile:
			f, err := os.Create(c.Path)
			if err != nil {
				return reply{}, err
			}
			runtime.GC() // the profile is as of the last collection
			return reply{}, errors.Join(pprof.WriteHeapProfile(f), f.Close())
		case doEndProfile:
			if profile == nil {
				return reply{}, errors.New("no profile was begun")
			}
			pprof.StopCPUProfile()
			err := profile.Close()
			profile = nil
			return reply{}, err
		}
		return reply{}, fmt.Errorf("no command %q", c.Do)
	})
}
