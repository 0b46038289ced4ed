package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"xdsrelay/config"
)

// runningFlags select the running relay of a command: by its address, or by its configuration.
type runningFlags struct {
	*adminFlags
	file *string
	cmd  *cobra.Command
}

// adminDefault describes the default of --admin for commands that have runningFlags.
var adminDefault = "admin.address of --config, else " + config.Default().Admin.Address

func addRunningFlags(cmd *cobra.Command) *runningFlags {
	return &runningFlags{
		adminFlags: addAdminFlags(cmd, adminDefault), cmd: cmd,
		file: cmd.Flags().StringP("config", "c", config.DefaultFile, "configuration file of the relay, for its admin address and token"),
	}
}

// addOpenFlags adds runningFlags for a command that needs no token.
func addOpenFlags(cmd *cobra.Command) *runningFlags {
	return &runningFlags{
		adminFlags: addAddressFlags(cmd, adminDefault), cmd: cmd,
		file: cmd.Flags().StringP("config", "c", config.DefaultFile, "configuration file of the relay, for its admin address"),
	}
}

// client makes a client of the selected relay. Without flags and without a file it uses the default
// admin address.
func (f *runningFlags) client() (*adminClient, error) {
	var load func() (*config.Config, error)
	cfg := new(config.Config)
	switch given := f.cmd.Flags().Changed("config"); {
	case given || f.address == "" && isFile(*f.file):
		var err error
		load = config.Loader(*f.file, nil)
		if cfg, err = reachable(load); err != nil {
			return nil, err
		}
	case f.address == "":
		*cfg = config.Default()
	}
	c, err := f.adminFlags.client(cfg)
	if err == nil && f.address == "" {
		c.load = load
	}
	return c, err
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

// get sends a GET and decodes the answer.
func (c *adminClient) get(ctx context.Context, path string, query url.Values, into any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return fmt.Errorf("--admin: %w", err)
	}
	return c.do(req, into)
}

// pageSize is the number of items of a list in one request.
const pageSize = 10_000

// list returns all items of a list, page by page.
func (c *adminClient) list(ctx context.Context, path string, query url.Values) ([]json.RawMessage, error) {
	all := []json.RawMessage{}
	q := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for name, v := range query {
		q[name] = v
	}
	for {
		var page struct {
			Items []json.RawMessage `json:"items"`
			Next  string            `json:"next_page_token"`
		}
		if err := c.get(ctx, path, q, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.Next == "" {
			return all, nil
		}
		q.Set("page_token", page.Next)
	}
}

// listOfKey is list for a query that may have a key. An empty list is fine for a known key; an
// unknown key is most likely a mistake, and an error.
func (c *adminClient) listOfKey(ctx context.Context, path string, query url.Values) ([]json.RawMessage, error) {
	items, err := c.list(ctx, path, query)
	if err == nil && len(items) == 0 && query.Has("key") {
		err = c.get(ctx, "/keys/"+url.PathEscape(query.Get("key")), nil, new(json.RawMessage))
	}
	return items, err
}
