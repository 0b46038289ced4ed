package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"xdsrelay/config"
	"xdsrelay/internal/adminclient"
	"xdsrelay/internal/cluster"
	"xdsrelay/internal/validation"
)

// runningFlags select the running relay of a command: by its address, or by its configuration.
type runningFlags struct {
	*adminclient.Options
	file *string
	cmd  *cobra.Command
}

// adminDefault describes the default of --admin for commands that have runningFlags.
var adminDefault = "admin.address of --config, else " + config.Default().Admin.Address

func addRunningFlags(cmd *cobra.Command) *runningFlags {
	return &runningFlags{
		Options: addAdminFlags(cmd, adminDefault), cmd: cmd,
		file: cmd.Flags().StringP("config", "c", config.DefaultFile, "configuration file of the relay, for its admin address and token"),
	}
}

// addOpenFlags adds runningFlags for a command that needs no token.
func addOpenFlags(cmd *cobra.Command) *runningFlags {
	return &runningFlags{
		Options: addAddressFlags(cmd, adminDefault), cmd: cmd,
		file: cmd.Flags().StringP("config", "c", config.DefaultFile, "configuration file of the relay, for its admin address"),
	}
}

// client makes a client of the selected relay. Without flags and without a file it uses the default
// admin address.
func (f *runningFlags) client() (*adminclient.Client, error) {
	var load func() (*config.Config, error)
	cfg := new(config.Config)
	switch given := f.cmd.Flags().Changed("config"); {
	case given || f.Address == "" && isFile(*f.file):
		var err error
		load = config.Loader(*f.file, nil)
		if cfg, err = reachable(load); err != nil {
			return nil, err
		}
	case f.Address == "":
		*cfg = config.Default()
	}
	c, err := adminclient.New(*f.Options, cfg)
	if err == nil && f.Address == "" && load != nil {
		c.Faults = func() error {
			cfg, err := load()
			if err == nil {
				_, err = validation.Compile(cfg)
			}
			return err
		}
	}
	return c, err
}

// run makes the RunE of a command that asks the selected relay.
func (f *runningFlags) run(do func(cmd *cobra.Command, c *adminclient.Client) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		c, err := f.client()
		if err != nil {
			return err
		}
		defer c.Close()
		return do(cmd, c)
	}
}

// reachable returns a configuration if its admin keys are valid, because only those are needed to
// reach the relay.
func reachable(load func() (*config.Config, error)) (*config.Config, error) {
	cfg, err := load()
	if faults := (config.Faults)(nil); cfg != nil && errors.As(err, &faults) {
		err = faults.Of("admin.address", "admin.tls", "admin.token_file").Err()
	}
	if err != nil {
		return nil, fmt.Errorf("%w\nthe command reads the file only for the address of the relay; with --admin ADDRESS it needs no file", err)
	}
	return cfg, nil
}

func isFile(name string) bool {
	_, err := os.Stat(name)
	return !errors.Is(err, fs.ErrNotExist)
}

// addAdminFlags adds --admin, --admin-ca, --admin-server-name and --token-file. otherwise describes
// the default of --admin.
func addAdminFlags(cmd *cobra.Command, otherwise string) *adminclient.Options {
	f := addAddressFlags(cmd, otherwise)
	cmd.Flags().StringVar(&f.Token, "token-file", "", "file with the admin token (default: admin.token_file of the configuration)")
	f.Open = false
	return f
}

// addAddressFlags is addAdminFlags without --token-file.
func addAddressFlags(cmd *cobra.Command, otherwise string) *adminclient.Options {
	f := adminclient.Options{Open: true}
	cmd.Flags().StringVar(&f.Address, "admin", "", "admin address of the relay (default: "+otherwise+")")
	cmd.Flags().StringVar(&f.CA, "admin-ca", "", "file with CA certificates that verify the relay (default: the system's)")
	cmd.Flags().StringVar(&f.ServerName, "admin-server-name", "", "name that the relay's certificate must have (default: the host of the address)")
	completeNothing(cmd, "admin", "admin-server-name")
	return &f
}

// addIgnoreDeadFlag adds the flag to a command with --members.
func addIgnoreDeadFlag(cmd *cobra.Command, d *time.Duration) {
	cmd.Flags().DurationVar(d, "ignore-dead", cluster.KeepEnded, "with --members, do not ask a relay that has been dead for so long")
	completeNothing(cmd, "ignore-dead")
}
