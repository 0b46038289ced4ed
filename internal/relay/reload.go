package relay

import (
	"context"
	"errors"
	"log/slog"
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
	"xdsrelay/internal/telemetry/logsample"
	"xdsrelay/internal/telemetry/redact"
	"xdsrelay/internal/telemetry/tlsfiles"
	"xdsrelay/internal/validation"
)

// reloader follows the configuration file and the files that it names. A valid change applies as
// far as it can without a restart; a change with any fault applies not at all. Only the admin token
// is independent of that.
type reloader struct {
	relay   *Relay
	load    func() (*config.Config, error) // reads the file, with flags and environment over it, as at the start
	file    string                         // the configuration file; empty: no regular file, which cannot change
	hangups <-chan os.Signal

	follow atomic.Pointer[[]string]            // the files that are watched
	status atomic.Pointer[admin.Configuration] // for the admin API
	token  atomic.Pointer[admin.RejectedFile]  // why the token's file is not used; nil: it is

	compared atomic.Int64 // clients that checkRekeyed has compared; 0: it is not running

	mu     sync.Mutex // held by reload
	failed string     // the fault that rejected the file's last content; empty: none
	// unforced was rejected by aggregation.max_rekeyed for the fault unforcedFault; nil: none was.
	unforced      *activeConfig
	unforcedFault error
}

// newReloader makes the reloader of a relay. load returned the relay's present configuration.
func newReloader(r *Relay, load func() (*config.Config, error), hangups <-chan os.Signal) *reloader {
	l := &reloader{relay: r, load: load, hangups: hangups}
	if f := r.cfg.Places.File(); config.Regular(f) {
		l.file = f
	}
	l.follow.Store(l.followed(r.cfg, false))
	l.status.Store(&admin.Configuration{File: r.cfg.Places.File(), Since: time.Now()})
	return l
}

// configuration returns the state of the configuration file and of the files that it names.
func (r *Relay) configuration() admin.Configuration {
	out := admin.Configuration{File: r.cfg.Places.File(), Since: r.started}
	if r.reloads != nil {
		out = *r.reloads.status.Load()
		if f := r.reloads.token.Load(); f != nil {
			out.RejectedFiles = append(out.RejectedFiles, *f)
		}
	}
	if checked, clients, ending, inWork := r.fanout.Rekeying(); inWork {
		out.Reloading = &admin.Reloading{Checked: checked, Clients: clients, Ending: ending, Over: r.active.Load().cfg.Downstream.Drain.Seconds()}
	}
	if r.reloads != nil && r.reloads.compared.Load() > 0 {
		out.Reloading = &admin.Reloading{Checked: r.reloads.compared.Load()}
	}
	for _, c := range r.certs() {
		if f := c.Fault(); f != nil {
			out.RejectedFiles = append(out.RejectedFiles, admin.RejectedFile{Of: c.Name(), Error: redact.Text(f.Err.Error()), Since: f.Since})
		}
	}
	for _, e := range r.listeners {
		if e.policy.Tokens == nil {
			continue
		}
		if since, err := e.policy.Tokens.Fault(); err != nil {
			out.RejectedFiles = append(out.RejectedFiles, admin.RejectedFile{Of: e.conf.Key + ".tokens: the issuer's keys", Error: redact.Text(err.Error()), Since: since})
		}
	}
	for _, c := range append(r.certs(), r.origins.Certificates()...) {
		if v, ok := c.Validity(); ok {
			out.Certificates = append(out.Certificates, admin.Certificate{Of: c.Name(), Validity: v})
		}
	}
	return out
}

// certs returns the sources of the certificates of all listeners, that for members included.
func (r *Relay) certs() (out []*tlsfiles.Source) {
	for _, e := range r.listeners {
		if e.certs != nil {
			out = append(out, e.certs)
		}
	}
	if c := r.Admin.Certificates(); c != nil {
		out = append(out, c)
	}
	if r.Member != nil && r.Member.certs != nil {
		out = append(out, r.Member.certs)
	}
	return out
}

// followed returns the files whose change reloads the configuration. The sources of certificates
// watch their own files. Those are added here only while the configuration is rejected, since a new
// certificate may repair it.
func (l *reloader) followed(cfg *config.Config, rejected bool) *[]string {
	var out []string
	add := func(files ...string) {
		for _, f := range files {
			if f != "" && !slices.Contains(out, f) {
				out = append(out, f)
			}
		}
	}
	add(l.file, l.relay.active.Load().cfg.Aggregation.File, l.relay.cfg.Admin.TokenFile)
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
		return filewatch.Run(ctx, l.relay.log, func() []string { return *l.follow.Load() }, func() bool {
			return l.reload(false, false).Result != admin.ReloadRejected && l.token.Load() == nil
		})
	})
	g.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-l.hangups:
				l.reload(true, false)
			}
		}
	})
	return g.Wait()
}

// reload reads the configuration again. With requested, on SIGHUP or POST /reload, it also reads
// certificates and the directories of origins, and logs a line even if nothing changed. With force
// it ignores aggregation.max_rekeyed.
func (l *reloader) reload(requested, force bool) admin.Reload {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.relay
	log := l.log(requested)
	l.takeToken()
	if requested {
		for _, c := range r.certs() {
			c.Reload()
		}
		r.origins.Reload()
	}
	before := r.active.Load()
	cfg, err := l.load()
	next, err := r.prepare(cfg, err)
	var changed []string
	valid := err == nil
	if valid {
		changed = next.changes(before)
		if !force {
			err = l.checkRekeyed(next, changed)
		}
	}
	if err != nil {
		l.follow.Store(l.followed(cfg, true))
		l.reject(err, valid, requested)
		return admin.Reload{Result: admin.ReloadRejected, Faults: l.status.Load().Rejected.Faults}
	}
	repaired := l.failed != ""
	l.failed, l.unforced, l.unforcedFault = "", nil, nil
	says := *l.status.Load()
	says.Rejected = nil
	var now []string
	if len(changed) > 0 {
		now = r.reconfigure(next, changed)
		says.Since = time.Now()
		says.NeedsRestart = r.needsRestart(config.Diff(r.atStart(cfg), cfg), cfg)
		next.warn(r.log, before)
	}
	l.follow.Store(l.followed(cfg, false))
	l.status.Store(&says)
	r.metrics.ConfigRejected.Set(0)
	r.metrics.ConfigNeedsRestart.Set(len(says.NeedsRestart))
	if repaired || len(changed) > 0 {
		r.metrics.ReloadConfig(telemetry.Reloaded)
	}
	for _, key := range changed {
		if reloadable.MatchString(key) {
			now = append(now, key)
		}
	}
	restart := slices.DeleteFunc(r.needsRestart(changed, cfg), func(key string) bool { return !slices.Contains(says.NeedsRestart, key) })
	switch {
	case len(now) > 0:
		log.Info("configuration reloaded", "changed", strings.Join(now, " "))
	case repaired && len(says.NeedsRestart) > 0:
		log.Info("configuration has no faults now; some values need a restart", "needs_restart", strings.Join(says.NeedsRestart, " "))
	case repaired:
		log.Info("configuration has no faults now; it is the one in force")
	case requested && len(changed) == 0 && len(says.NeedsRestart) > 0:
		log.Info("configuration has not changed since it was last read", "needs_restart", strings.Join(says.NeedsRestart, " "))
	case requested && len(changed) == 0:
		log.Info("configuration has not changed")
	}
	if len(restart) > 0 {
		log.Warn("configuration change needs a restart", "keys", strings.Join(restart, " "))
	}
	out := admin.Reload{Result: admin.ReloadUnchanged, Changed: now, NeedsRestart: says.NeedsRestart}
	if repaired || len(changed) > 0 {
		out.Result = admin.ReloadDone
	}
	return out
}

// reload reads the configuration file again, for the admin API. It returns false if the relay
// follows no file.
func (r *Relay) reload(force bool) (admin.Reload, bool) {
	if r.reloads == nil {
		return admin.Reload{}, false
	}
	return r.reloads.reload(true, force), true
}

// changes returns the keys that differ from those of before. Without a change of the rules, c takes
// the compiled rules of before, which have statistics.
func (c *activeConfig) changes(before *activeConfig) []string {
	changed := config.Diff(before.cfg, c.cfg)
	switch {
	case slices.ContainsFunc(changed, aggregation.MatchString):
	case c.Rules.SameFile(before.Rules):
		c.Rules = before.Rules
	default:
		changed = append(changed, "aggregation.file")
	}
	return changed
}

// takeToken makes the admin address ask for the file's current token. It does so even if the
// configuration file has faults: a typing error there must not keep a revoked token valid. A token
// that cannot be used is a fault of the configuration that names it, and the one before stays
// valid.
func (l *reloader) takeToken() {
	r := l.relay
	f := r.cfg.Admin.TokenFile
	if f == "" {
		return
	}
	token, err := admin.ReadToken(f)
	err = redact.Error(err)
	was := l.token.Load()
	switch {
	case err != nil && (was == nil || was.Error != err.Error()):
		r.log.Warn("admin token not reloaded; the previous token stays valid", "file", f, "error", err.Error())
		now := admin.RejectedFile{Of: "admin.token_file", Error: err.Error(), Since: time.Now()}
		if was != nil {
			now.Since = was.Since
		}
		l.token.Store(&now)
	case err != nil:
	default:
		l.token.Store(nil)
		if r.Admin.SetToken(token) {
			r.log.Info("admin token reloaded", "file", f)
		} else if was != nil {
			r.log.Info("admin token file is usable again; the token has not changed", "file", f)
		}
	}
}

// checkRekeyed returns a fault if the configuration changes the key of too many clients. Once
// rejected, the same rules need force later too, because some clients may have left meanwhile.
func (l *reloader) checkRekeyed(next *activeConfig, changed []string) error {
	isAggregation := func(key string) bool { return strings.HasPrefix(key, "aggregation.") }
	if l.unforced != nil && !slices.ContainsFunc(next.changes(l.unforced), isAggregation) {
		return l.unforcedFault
	}
	err := l.relay.checkRekeyed(next, changed, &l.compared)
	l.compared.Store(0)
	l.unforced, l.unforcedFault = nil, err
	if err != nil {
		l.unforced = next
	}
	return err
}

// prepare compiles a configuration and checks it. err has the faults found while reading it. It
// changes nothing.
func (r *Relay) prepare(cfg *config.Config, err error) (*activeConfig, error) {
	c, err := validation.Check(cfg, err, r.cfg)
	if err != nil {
		return nil, err
	}
	return &activeConfig{cfg: cfg, Compiled: c}, nil
}

// log is the logger for outcomes. No outcome of a requested reload is left out of the log.
func (l *reloader) log(requested bool) *slog.Logger {
	if requested {
		return l.relay.log.With(logsample.Requested, true)
	}
	return l.relay.log
}

// maxFaults bounds how many faults of a file are logged and shown.
const maxFaults = 20

// reject keeps the configuration in force and logs the faults. It logs the same faults again only
// with requested. needsForce: the files are valid.
func (l *reloader) reject(err error, needsForce, requested bool) {
	r := l.relay
	if err.Error() == l.failed && !requested {
		return
	}
	l.failed = err.Error()
	lines := []string{l.failed}
	if faults := (config.Faults)(nil); errors.As(err, &faults) {
		lines = nil
		for _, f := range faults[:min(len(faults), maxFaults)] {
			lines = append(lines, f.Text())
		}
	}
	for i, line := range lines {
		lines[i] = redact.Text(line)
	}
	says := *l.status.Load()
	says.NeedsRestart = nil // of an earlier version of the file
	says.Rejected = &admin.Rejection{At: time.Now(), Faults: lines, NeedsForce: needsForce}
	l.status.Store(&says)
	r.metrics.ReloadConfig(telemetry.ReloadFailed)
	r.metrics.ConfigRejected.Set(1)
	r.metrics.ConfigNeedsRestart.Set(0)
	for _, line := range lines {
		l.log(requested).Error("configuration not reloaded; the previous one stays in force", "fault", line)
	}
}
