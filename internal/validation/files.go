package validation

import (
	"errors"
	"fmt"
	"os"

	"xdsrelay/config"
	"xdsrelay/internal/admin"
	"xdsrelay/internal/fanout/tokens"
	"xdsrelay/internal/store"
	"xdsrelay/internal/upstream/filesource"
)

// directoryFaults checks the files of origins that are directories. A directory that cannot be read
// or has no files is a warning, because it may come later. serve starts in each case, also with
// faulty files, logs the fault and looks again.
func directoryFaults(cfg *config.Config) (faults, warnings config.Faults) {
	for i := range cfg.Upstream.Origins {
		dir, ok := cfg.Upstream.Origins[i].Dir()
		if !ok {
			continue
		}
		key := fmt.Sprintf("upstream.origins[%d].address", i)
		is, err := os.Stat(dir)
		if err == nil && is.IsDir() {
			_, err = os.ReadDir(dir)
		}
		switch {
		case err != nil:
			warnings = append(warnings, cfg.Places.Fault(key, "%v: the origin is away until the directory can be read", err))
		case is.IsDir():
			// f.File is the origin's file; the key names the directory in the configuration.
			for _, f := range filesource.CheckDirectory(dir) {
				if errors.Is(f.Err, filesource.ErrNoFiles) {
					warnings = append(warnings, cfg.Places.Fault(key, "%s: %v: the origin is away until the directory has a file", dir, f.Err))
					continue
				}
				faults = append(faults, config.Fault{Pos: config.Pos{File: f.File}, Key: key, Reason: f.Err.Error()})
			}
		}
	}
	return faults, warnings
}

// storeWarnings warn of a store directory that cannot be used, or that other users may access.
// serve starts nevertheless, and creates a directory that does not exist.
func storeWarnings(cfg *config.Config) config.Faults {
	p := cfg.Store.Path
	if p == "" {
		return nil
	}
	may, err := store.Check(p)
	switch {
	case err != nil:
		return config.Faults{cfg.Places.Fault("store.path", "%v: the store is off until the directory can be used", err)}
	case may != "":
		return config.Faults{cfg.Places.Fault("store.path", "other users may %s %s; its mode should be 0700", may, p)}
	}
	return nil
}

// tokenFaults are the tokens, and the keys of tokens' issuers, that cannot be used.
func tokenFaults(cfg *config.Config) (faults config.Faults) {
	check := func(key, file string, read func(string) error) {
		if file == "" {
			return
		}
		if err := read(file); err != nil {
			faults = append(faults, cfg.Places.Fault(key, "%v", err))
		}
	}
	token := func(file string) error { _, err := tokens.ReadFile(file); return err }
	check("admin.token_file", cfg.Admin.TokenFile, func(file string) error { _, err := admin.ReadToken(file); return err })
	for _, l := range cfg.Downstream.Listen() {
		check(l.Key+".tokens.jwks_file", l.Tokens.JWKSFile, tokens.CheckKeys)
		check(l.Key+".tokens.jwks_token_file", l.Tokens.JWKSTokenFile, token)
	}
	for i, o := range cfg.Upstream.Origins {
		check(fmt.Sprintf("upstream.origins[%d].token_file", i), o.TokenFile, token)
	}
	return faults
}
