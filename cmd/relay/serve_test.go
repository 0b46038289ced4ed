package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// The demo shows clients that get their configuration, changes, a refusal and addresses, and leaves
// no files.
func TestDemo(t *testing.T) {
	defer goleak.VerifyNone(t)
	code, out, errs := runRelay("demo", "--clients", "10", "--for", "10s")
	if code != 0 {
		t.Fatalf("%d: %s%s", code, out, errs)
	}
	for _, want := range []string{
		"curl -s http://127.0.0.1:", "all 10 clients have their configuration",
		"change 1: endpoints", "10 of 10 clients accepted it", "change 2: routes", "edge-000 rejected it", "9 of 10 clients accepted it",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output does not say %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "protocol broken") {
		t.Error(out)
	}
	metrics, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`\^xdsrelay_\(([a-z_|]+)\)`).FindStringSubmatch(out)
	if named == nil {
		t.Fatalf("the output names no metrics:\n%s", out)
	}
	for name := range strings.SplitSeq(named[1], "|") {
		if !bytes.Contains(metrics, []byte("`xdsrelay_"+name+"`")) {
			t.Errorf("the metric %s does not exist", name)
		}
	}
}

// signalledEnv makes the process that TestSignals starts wait for signals.
const signalledEnv = "RELAY_TEST_SIGNALLED"

// The first SIGTERM ends one context; the second ends the other and is logged; the third ends the
// process.
func TestSignals(t *testing.T) {
	if os.Getenv(signalledEnv) != "" {
		first, second, stop := signals(context.Background(), slog.New(slog.NewTextHandler(os.Stdout, nil)))
		defer stop()
		fmt.Println("ready")
		<-first.Done()
		fmt.Println("first", second.Err())
		<-second.Done()
		fmt.Println("second")
		select {} // a program that does not end
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSignals$")
	cmd.Env = append(os.Environ(), signalledEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }() // it has ended, unless the test fails
	lines := bufio.NewScanner(out)
	for _, want := range []string{"ready", "first <nil>", "stopping at once", "second"} {
		if !lines.Scan() || !strings.Contains(lines.Text(), want) {
			t.Fatalf("it says %q, and not %q", lines.Text(), want)
		}
		if want != "stopping at once" {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	for lines.Scan() { // Wait closes the pipe
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v", err)
	}
}
