package overview

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestSamplesOfFifteenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		began := time.Now()
		s := NewSampler(func() Numbers {
			n := int(time.Since(began) / time.Second)
			return Numbers{Clients: n, States: States{Synced: n}, Totals: Totals{Responses: int64(3 * n), Acks: int64(2 * n), Nacks: int64(n)}}
		})
		go s.Run(ctx)
		if got := s.Samples(); got == nil || len(got) != 0 {
			t.Errorf("at the start: %v", got)
		}
		time.Sleep(25 * time.Second)
		want := []Sample{
			{At: began.Add(10 * time.Second), Clients: 10, States: States{Synced: 10}, Responses: 3, Acks: 2, Nacks: 1},
			{At: began.Add(20 * time.Second), Clients: 20, States: States{Synced: 20}, Responses: 3, Acks: 2, Nacks: 1},
		}
		if got := s.Samples(); len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
			t.Errorf("%+v, want %+v", got, want)
		}
		time.Sleep(time.Hour)
		got := s.Samples()
		if len(got) != maxSamples || got[len(got)-1].At.Sub(got[0].At) != 15*time.Minute-sampleEvery {
			t.Errorf("%d samples from %v", len(got), got[0].At)
		}
		if age := time.Since(got[len(got)-1].At); age > sampleEvery {
			t.Errorf("the newest is %s old", age)
		}
		stop()
		synctest.Wait()
	})
}
