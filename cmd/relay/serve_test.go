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
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/xdstest"
)

// The demo shows clients that get their configuration, changes, a refusal and addresses, and leaves
// no files.
func TestDemo(t *testing.T) {
	defer goleak.VerifyNone(t)
	code, out, errs := runRelay("demo", "--clients", "10", "--for", "7s")
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
	for _, name := range demoMetrics {
		if !bytes.Contains(metrics, []byte("`xdsrelay_"+name+"`")) || !strings.Contains(out, name) {
			t.Errorf("the metric %s does not exist, or the output does not name it", name)
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

// The relay runs without admin, answers gRPC health, and ends with its context.
func TestRelayRunsAndEnds(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := files(t, map[string]string{"relay.yaml": "upstream: {origins: [{address: 'file:.'}]}\n" +
		"downstream: {address: '127.0.0.1:0', drain: 0s}\nadmin: {address: ''}\nlog: {level: error}\n"})
	r := load(t, filepath.Join(dir, "relay.yaml"))
	stop := xdstest.Run(t, func(ctx context.Context) error { return r.run(ctx, context.Background()) })
	conn, err := grpc.NewClient(r.listeners[0].Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	call, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	got, err := grpc_health_v1.NewHealthClient(conn).Check(call, &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(true))
	if err != nil || got.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", got, err)
	}
	// Health by name: for each service, and for no other.
	health := grpc_health_v1.NewHealthClient(conn)
	services := r.grpc.GetServiceInfo()
	if _, ok := services["envoy.service.discovery.v3.AggregatedDiscoveryService"]; !ok {
		t.Errorf("services are %v", services)
	}
	for service := range services {
		got, err := health.Check(call, &grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil || got.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health of %s: %v, %v", service, got, err)
		}
	}
	if _, err := health.Check(call, &grpc_health_v1.HealthCheckRequest{Service: "nope"}); status.Code(err) != codes.NotFound {
		t.Errorf("health of what is not there: %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	stop()
}
