package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"xdsrelay/config"
	"xdsrelay/internal/admin"
	"xdsrelay/internal/filewatch"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/telemetry/tlsfiles"
)

// reloader follows the configuration's file, and what that names, and puts in force
// what it says: all of what can be, or, if anything is wrong, nothing. Only the token
// is taken by itself.
type reloader struct {
	relay   *relay
	load    func() (*config.Config, error) // as at the start, flags and environment over the file
	hangups <-chan os.Signal

	follow atomic.Pointer[[]string]            // the files
	says   atomic.Pointer[admin.Configuration] // for people
	token  atomic.Pointer[admin.NotTaken]      // why the token before is asked for still; nil: it is that of the file

	mu     sync.Mutex // held by reload
	failed string     // why what the file says was rejected last; empty: it was not
}

// newReloader makes the reloader of a relay, whose configuration load has given.
func newReloader(r *relay, load func() (*config.Config, error), hangups <-chan os.Signal) *reloader {
	l := &reloader{relay: r, load: load, hangups: hangups}
	l.follow.Store(l.followed(r.cfg, false))
	l.says.Store(&admin.Configuration{File: r.cfg.Places.File(), Since: time.Now()})
	return l
}

// configuration is what came of the file, and of those that it names.
func (r *relay) configuration() admin.Configuration {
	out := admin.Configuration{File: r.cfg.Places.File(), Since: r.started}
	if r.reloads != nil {
		out = *r.reloads.says.Load()
		if f := r.reloads.token.Load(); f != nil {
			out.NotTaken = append(out.NotTaken, *f)
		}
	}
	for _, c := range r.certs() {
		if f := c.Fault(); f != nil {
			out.NotTaken = append(out.NotTaken, admin.NotTaken{Of: c.Name(), Error: f.Err.Error(), Since: f.Since})
		}
	}
	return out
}

// certs returns the sources of the certificates of all listeners.
func (r *relay) certs() (out []*tlsfiles.Source) {
	for _, e := range r.down {
		if e.certs != nil {
			out = append(out, e.certs)
		}
	}
	if c := r.admin.Certificates(); c != nil {
		out = append(out, c)
	}
	return out
}

// followed returns the files whose change reloads the configuration. Sources of certificates follow
// their own files, so those are followed here only while the configuration is rejected.
func (l *reloader) followed(cfg *config.Config, rejected bool) *[]string {
	out := []string{l.relay.cfg.Places.File()}
	add := func(files ...string) {
		for _, f := range files {
			if f != "" && !slices.Contains(out, f) {
				out = append(out, f)
			}
		}
	}
	add(l.relay.now.Load().cfg.Aggregation.File, l.relay.cfg.Admin.TokenFile)
	if cfg != nil {
		add(cfg.Aggregation.File, cfg.Admin.TokenFile)
		if rejected {
			add(cfg.Files()...)
		}
	}
	return &out
}

// run reloads on changes of the files and on hangups until ctx ends.
func (l *reloader) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return filewatch.Run(ctx, l.relay.log, func() []string { return *l.follow.Load() }, func() { l.reload(false) })
	})
	g.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-l.hangups:
				l.reload(true)
			}
		}
	})
	return g.Wait()
}

// reload reads all anew. Who asked for it is told also if there is nothing new.
func (l *reloader) reload(asked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.relay
	l.takeToken()
	cfg, err := l.load()
	next, err := r.prepare(cfg, err)
	if err != nil {
		l.follow.Store(l.followed(cfg, true))
		l.reject(err, asked)
		return
	}
	before := r.now.Load()
	changed := config.Diff(before.cfg, cfg)
	switch {
	case slices.ContainsFunc(changed, aggregation.MatchString):
	case next.rules.SameFile(before.rules):
		next.rules = before.rules // with what they remember
	default:
		changed = append(changed, "aggregation.file")
	}
	mended := l.failed != ""
	l.failed = ""
	says := *l.says.Load()
	says.Rejected = nil
	var now []string
	if len(changed) > 0 {
		now = r.reconfigure(next, changed)
		says.Since = time.Now()
		says.NeedsRestart = r.needsRestart(config.Diff(r.atStart(cfg), cfg), cfg)
		next.warn(r.log, before)
	}
	l.follow.Store(l.followed(cfg, false))
	l.says.Store(&says)
	r.meters.ConfigRejected.Set(0)
	r.meters.ConfigNeedsRestart.Set(len(says.NeedsRestart))
	if mended || len(changed) > 0 {
		r.meters.ReloadConfig(telemetry.Reloaded)
	}
	for _, key := range changed {
		if atOnce.MatchString(key) {
			now = append(now, key)
		}
	}
	restart := slices.DeleteFunc(r.needsRestart(changed, cfg), func(key string) bool { return !slices.Contains(says.NeedsRestart, key) })
	switch {
	case len(now) > 0:
		r.log.Info("configuration reloaded", "changed", strings.Join(now, " "))
	case mended && len(says.NeedsRestart) > 0:
		r.log.Info("configuration has no faults any more", "needs_restart", strings.Join(says.NeedsRestart, " "))
	case mended:
		r.log.Info("configuration is what is in force again")
	case asked && len(changed) == 0 && len(says.NeedsRestart) > 0:
		r.log.Info("configuration has not changed since it was read last", "needs_restart", strings.Join(says.NeedsRestart, " "))
	case asked && len(changed) == 0:
		r.log.Info("configuration has not changed")
	}
	if len(restart) > 0 {
		r.log.Warn("configuration: what changed here needs a restart", "keys", strings.Join(restart, " "))
	}
}

// takeToken has the token be asked for that is in the file in force now. Whatever
// the configuration's own file has come to: a token that was taken back must not
// stay good for as long as somebody's typing error. One that cannot be used is a
// fault of the configuration that names it, and the one before is still asked for.
func (l *reloader) takeToken() {
	r := l.relay
	f := r.cfg.Admin.TokenFile
	if f == "" {
		return
	}
	token, err := admin.ReadToken(f)
	was := l.token.Load()
	switch {
	case err != nil && (was == nil || was.Error != err.Error()):
		r.log.Warn("the token of the file cannot be used, the one before is still asked for at the admin address", "file", f, "error", err.Error())
		now := admin.NotTaken{Of: "admin.token_file", Error: err.Error(), Since: time.Now()}
		if was != nil {
			now.Since = was.Since
		}
		l.token.Store(&now)
	case err != nil:
	default:
		l.token.Store(nil)
		if r.admin.SetToken(token) {
			r.log.Info("another token is asked for at the admin address", "file", f)
		} else if was != nil {
			r.log.Info("the token of the file is that in force again", "file", f)
		}
	}
}

// prepare makes of a configuration what could be put in force; err is what was found
// wrong with it as it was read. It changes nothing.
func (r *relay) prepare(cfg *config.Config, err error) (*inForce, error) {
	c, err := checked(cfg, err, r.cfg)
	if err != nil {
		return nil, err
	}
	return &inForce{cfg: cfg, compiled: c}, nil
}

// maxFaults is how many faults of a file are logged and shown.
const maxFaults = 20

// reject leaves in force what is, and says why; of the same faults once, unless
// somebody asks.
func (l *reloader) reject(err error, asked bool) {
	r := l.relay
	if err.Error() == l.failed && !asked {
		return
	}
	l.failed = err.Error()
	lines := []string{l.failed}
	if faults := (config.Faults)(nil); errors.As(err, &faults) {
		lines = nil
		for _, f := range faults[:min(len(faults), maxFaults)] {
			lines = append(lines, faultText(f))
		}
	}
	says := *l.says.Load()
	says.Rejected = &admin.Rejection{At: time.Now(), Faults: lines}
	l.says.Store(&says)
	r.meters.ReloadConfig(telemetry.ReloadFailed)
	r.meters.ConfigRejected.Set(1)
	for _, line := range lines {
		r.log.Error("configuration not reloaded, what was before stays in force", "fault", line)
	}
}
