package xdstest

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// shared holds the relays that tests share, by name.
var shared struct {
	sync.Mutex
	relays map[string]*Relay
}

// SharedRelay returns the relay of this name, which several tests share. The first call starts it.
// Main ends it: it gets SIGTERM and has to exit with 0.
func SharedRelay(t testing.TB, name string, config Config) *Relay {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if r := shared.relays[name]; r != nil {
		return r
	}
	file := filepath.Join(buildDir, name+".yaml")
	if err := os.WriteFile(file, config.Text(), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := LaunchRelay(Command(t, "serve", "--config", file), nil)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if shared.relays == nil {
		shared.relays = make(map[string]*Relay)
	}
	shared.relays[name] = r
	return r
}

// endShared ends the relays that tests shared.
func endShared() error {
	shared.Lock()
	defer shared.Unlock()
	var errs []error
	for _, r := range shared.relays {
		err := r.Terminate()
		if err != nil {
			_, _ = os.Stderr.WriteString(r.Tail(150) + "\n")
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
