package main

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/demo"
	"xdsrelay/internal/xdstest"
)

// The README shows the output of commands on `make demo CLIENTS=4`. README_RECORDING=1 writes it
// again (make recording).
const (
	readme           = "../../README.md"
	recordingBegins  = "```console\n$ make demo CLIENTS=4 > /dev/null &\n"
	recordingEnds    = "```\n"
	recordingClients = 4
)

func TestReadmeShowsWhatCommandsPrint(t *testing.T) {
	var printed xdstest.Log
	xdstest.Run(t, func(ctx context.Context) error { return demo.Run(ctx, ctx, &printed, recordingClients, "v1") })
	printed.Until(t, 0, "\n")
	address := regexp.MustCompile(`look +http://([^/]+)/ `).FindStringSubmatch(printed.String())
	if address == nil || !strings.Contains(printed.String(), " status") {
		t.Fatalf("the demo does not say where to look:\n%s", printed.String())
	}
	relay := func(args ...string) string {
		code, out, errs := runRelay(append(args, "--admin", address[1])...)
		if code != 0 || errs != "" {
			t.Errorf("%v: %d %s%s", args, code, out, errs)
		}
		return out
	}
	record := func() string {
		now := recordingBegins
		run := func(args ...string) {
			now += "$ relay " + strings.Join(args, " ") + "\n" + relay(args...)
		}
		run("status")
		run("diff", "edge-000")
		return now + recordingEnds
	}
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), recordingBegins)
	shown, after, ends := strings.Cut(rest, recordingEnds)
	if !ok || !ends {
		t.Fatal("the README shows nothing")
	}
	// One client refuses the second of six changes, until the fifth.
	now, late := "", time.Now().Add(time.Minute)
	for tick := time.NewTicker(50 * time.Millisecond); time.Now().Before(late); <-tick.C {
		if out := relay("status"); !strings.Contains(out, " NACKED ") || strings.Contains(out, " STALE ") {
			continue
		}
		now = record()
		if os.Getenv("README_RECORDING") != "" {
			xdstest.WriteFile(t, readme, before+now+after)
			return
		}
		// On a slow machine the next change may come too early.
		if shape(recordingBegins+shown+recordingEnds) == shape(now) {
			return
		}
	}
	t.Errorf("the README shows\n%s\nand it is\n%s", shown, now)
}

var (
	anyNumber = regexp.MustCompile(`[0-9]+`)
	anyBlanks = regexp.MustCompile(` +`)
)

// shape is a text without numbers and column widths, which differ each time.
func shape(text string) string {
	return anyBlanks.ReplaceAllString(anyNumber.ReplaceAllString(text, "N"), " ")
}
