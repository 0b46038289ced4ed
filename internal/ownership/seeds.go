package ownership

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/store"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// A relay that has nothing of a key while no origin can be reached asks other members for a seed: what
// they hold of the key, as a store may hold it. So a new replica without a disk serves clients too.

// The method of a member that answers with a seed: a StringValue with the key, and a BytesValue with the
// seed. No seed is empty.
const (
	seedService = "xdsrelay.Member"
	seedMethod  = "Seed"
)

const (
	seedMembers = 3               // are asked
	maxSeeding  = 16              // keys at a time
	seedTimeout = 2 * time.Second // in all
)

// Seed encodes snapshots of a key, with their ages, since the clocks of members may differ. It skips
// types that are not stored.
func Seed(key xds.Key, snapshots []*snapshot.Snapshot, now time.Time) ([]byte, error) {
	var out []byte
	for _, s := range snapshots {
		if s.Type.Secret {
			continue
		}
		file, err := store.Encode(key, s)
		if err != nil {
			return nil, err
		}
		out = binary.AppendUvarint(out, uint64(max(0, now.Sub(s.Received))))
		out = binary.AppendUvarint(out, uint64(len(file)))
		out = append(out, file...)
	}
	return out, nil
}

var errSeed = errors.New("the seed is damaged")

// readSeed is the inverse of Seed. The times are those of this relay's clock.
func readSeed(key xds.Key, b []byte, now time.Time) (out []*snapshot.Snapshot, err error) {
	for len(b) > 0 {
		age, n := binary.Uvarint(b)
		size, m := binary.Uvarint(b[max(n, 0):])
		if n <= 0 || m <= 0 || size > uint64(len(b)-n-m) {
			return nil, errSeed
		}
		b = b[n+m:]
		k, s, err := store.Decode(b[:size])
		if err != nil || k != key {
			return nil, errors.Join(errSeed, err)
		}
		b = b[size:]
		s.Received = now.Add(-time.Duration(age))
		out = append(out, s)
	}
	return out, nil
}

// RegisterSeeds registers the method for other members with their server, which was made with
// listener.Credentials. held returns what is held of a key.
func (t *Table) RegisterSeeds(s grpc.ServiceRegistrar, held func(xds.Key) []*snapshot.Snapshot) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: seedService, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: seedMethod, Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			if err := listener.AdmitMember(ctx); err != nil {
				return nil, err
			}
			if err := decode(new(wrapperspb.StringValue)); err != nil {
				return nil, err
			}
			return t.seed(ctx, held)
		}}},
	}, t)
}

// seed answers another member with what is held of a key.
func (t *Table) seed(ctx context.Context, held func(xds.Key) []*snapshot.Snapshot) (*wrapperspb.BytesValue, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	key, refused := t.RelayKey(md)
	if refused != nil {
		return nil, refused
	}
	seed, err := Seed(key, held(key), time.Now())
	switch {
	case err != nil:
		return nil, status.Error(codes.Internal, err.Error())
	case len(seed) == 0:
		return nil, status.Errorf(codes.NotFound, "nothing is held of key %s", key)
	}
	return wrapperspb.Bytes(seed), nil
}

// Seeds asks the best other candidates of a key for seeds, and returns the youngest snapshot of each
// type. What is older than Options.MaxAge is left out. It takes seedTimeout at most.
func (t *Table) Seeds(ctx context.Context, key xds.Key) map[xds.TypeURL]*store.Stored {
	ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(ctx, t.metadata(key)), seedTimeout)
	defer cancel()
	select {
	case t.seeding <- struct{}{}:
		defer func() { <-t.seeding }()
	case <-ctx.Done():
		return nil
	}
	var mu sync.Mutex
	out := make(map[xds.TypeURL]*store.Stored)
	var asked sync.WaitGroup
	for _, o := range t.others(key, seedMembers) {
		asked.Go(func() {
			var answer wrapperspb.BytesValue
			if o.Call(ctx, "/"+seedService+"/"+seedMethod, wrapperspb.String(key.String()), &answer) != nil {
				return // it has none, or does not answer
			}
			all, err := readSeed(key, answer.Value, time.Now())
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, s := range all {
				if have := out[s.Type.URL]; have != nil && !have.Snapshot.Received.Before(s.Received) {
					continue
				}
				seed := &store.Stored{Snapshot: s}
				if t.opts.MaxAge > 0 {
					seed.Until = s.Received.Add(t.opts.MaxAge)
				}
				out[s.Type.URL] = seed
			}
		})
	}
	asked.Wait()
	return out
}

// others returns up to n of the best candidates of a key besides this relay.
func (t *Table) others(key xds.Key, n int) (out []*upstream.Origin) {
	best := t.opts.Cluster.Candidates(key)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range best {
		if other := t.members[idOf(m)]; other != nil && len(out) < n {
			out = append(out, other.origin)
		}
	}
	return out
}
