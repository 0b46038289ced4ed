//go:build linux

package main

import (
	"os"
	"os/exec"
	"testing"
)

// What a process has used of a processor grows as it uses one.
func TestUsedOfAProcessor(t *testing.T) {
	p, err := run("busy", exec.Command("sh", "-c", "while :; do :; done"), os.Stderr, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer p.kill()
	last, err := p.used()
	for n := 0; err == nil && n < 3; {
		used, failed := p.used()
		if err = failed; used > last {
			last, n = used, n+1
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
