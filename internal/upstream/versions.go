package upstream

import "xdsrelay/internal/xds"

// logVersion logs a version of a type that the group holds now, so that the log shows when it
// came. A version that arrives in several responses is logged once. Stored content that the origin
// confirms is no new version.
func (l *line) logVersion(u *xds.Update, was *xds.Snapshot) {
	snap := l.sink.Held(u.Type)
	if snap == nil || !u.Versioned() {
		return // the update is no response of the origin
	}
	if was != nil {
		same := was.Version == snap.Version && was.Given() == snap.Given()
		if was.Stale {
			same = was.Alike(snap)
		}
		if same {
			return
		}
	}
	args := []any{"origin", u.Origin, "type", u.Type, "version", snap.Version}
	if u.Version != "" {
		args = append(args, "origin_version", u.Version)
	}
	l.log.Info("new version from the origin", args...)
}
