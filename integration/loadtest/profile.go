//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// profiles writes the profiles of a busy server to the profile directory: CPU in NAME.pprof, the
// heap in NAME.heap.pprof, and their top functions in NAME.txt.
func (o *options) profiles(ctx context.Context, c *contender) error {
	if o.profile == "" {
		return nil
	}
	file := o.profileOf(c)
	o.log("profile %s.pprof", file)
	if err := c.profile(ctx, file+".pprof", o.busy); err != nil {
		return err
	}
	return o.heapProfiles(ctx, c)
}

// heapProfiles writes the profiles of an idle server.
func (o *options) heapProfiles(ctx context.Context, c *contender) error {
	if o.profile == "" {
		return nil
	}
	file := o.profileOf(c)
	if err := c.heapProfile(ctx, file+".heap.pprof"); err != nil {
		return err
	}
	text := ""
	for _, p := range []struct{ path, sample, what string }{
		{file + ".pprof", "cpu", "CPU while busy"},
		{file + ".heap.pprof", "inuse_space", "heap in use"},
		{file + ".heap.pprof", "alloc_space", "ever allocated"},
	} {
		if _, err := os.Stat(p.path); os.IsNotExist(err) {
			continue
		}
		top, err := pprofTop(ctx, p.path, p.sample)
		if err != nil {
			return err
		}
		text += fmt.Sprintf("%s: %s\n%s\n", c.name, p.what, top)
	}
	return os.WriteFile(file+".txt", []byte(text), 0o644)
}

func (o *options) profileOf(c *contender) string {
	return filepath.Join(o.profile, strings.ReplaceAll(c.name, " ", "-"))
}

// topNodes is the number of a profile's functions in the text.
const topNodes = 25

func pprofTop(ctx context.Context, path, sample string) (string, error) {
	var faults strings.Builder
	cmd := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", fmt.Sprintf("-nodecount=%d", topNodes), "-sample_index="+sample, path)
	cmd.Stderr = &faults
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("pprof %s: %w: %s", path, err, faults.String())
	}
	return string(out), nil
}

// heapProfile writes the relay's heap profile.
func (a admin) heapProfile(ctx context.Context, path string) error {
	return a.save(ctx, "/debug/pprof/heap?gc=1", path)
}

// cpuProfile is the path of the relay's CPU profile over the next seconds.
func cpuProfile(seconds int) string { return fmt.Sprintf("/debug/pprof/profile?seconds=%d", seconds) }

// save writes the relay's answer for a path to a file.
func (a admin) save(ctx context.Context, from, path string) error {
	body, err := a.get(ctx, from)
	if err != nil {
		return err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// profile requests a profile over this many seconds, and keeps the relay busy meanwhile.
func (a admin) profile(ctx context.Context, path string, seconds int, c *contender) error {
	got := make(chan error, 1)
	go func() { got <- a.save(ctx, cpuProfile(seconds), path) }()
	if err := c.busy(ctx, seconds); err != nil {
		return err
	}
	return <-got
}

// profilesAtRest writes the profiles of a relay, and another of its CPU while nothing changes:
// NAME.at-rest.pprof.
func (o *options) profilesAtRest(ctx context.Context, c *contender) error {
	if o.profile == "" {
		return nil
	}
	if err := o.profiles(ctx, c); err != nil {
		return err
	}
	file := o.profileOf(c) + ".at-rest"
	o.log("profile %s.pprof", file)
	if err := c.admin.save(ctx, cpuProfile(int(pingEvery.Seconds())), file+".pprof"); err != nil {
		return err
	}
	top, err := pprofTop(ctx, file+".pprof", "cpu")
	if err != nil {
		return err
	}
	return os.WriteFile(file+".txt", []byte(top), 0o644)
}
