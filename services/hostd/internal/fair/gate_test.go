package fair

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// flood makes a loud flow store n messages of size bytes at once; granted gets each pass.
// Those that still wait end with ctx.
func flood(ctx context.Context, f *Flow, n, size int, granted chan<- *Pass) {
	for range n {
		go func() {
			if p, err := f.Enter(ctx, size); err == nil {
				granted <- p
			}
		}()
	}
	synctest.Wait()
}

// loud returns a flow that has used up its allowance.
func loud(t *testing.T, g *Gate) *Flow {
	t.Helper()
	f := g.Flow()
	p, err := f.Enter(t.Context(), 2*burst)
	if err != nil || p == nil {
		t.Fatalf("%v, %v: a flow beyond its burst must be loud", p, err)
	}
	p.Leave()
	return f
}

func TestQuietFlowNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		noisy, quiet := loud(t, &g), g.Flow()
		granted := make(chan *Pass, 1000)
		flood(t.Context(), noisy, 1000, quantum, granted)
		if n := len(granted); n == 0 || n > window/quantum {
			t.Fatalf("%d messages of the flood are in flight, want some, and at most the window", n)
		}
		begun := time.Now()
		for range 100 { // nothing leaves: a wait would never end
			if p, err := quiet.Enter(t.Context(), 100); err != nil || p != nil {
				t.Fatalf("%v, %v", p, err)
			}
		}
		if d := time.Since(begun); d != 0 {
			t.Errorf("it waited for %v", d)
		}
		drain(granted, 1000)
	})
}

// drain lets n passes leave, each as it is granted.
func drain(granted <-chan *Pass, n int) {
	for range n {
		(<-granted).Leave()
	}
}

func TestLoudFlowsTakeTurnsByBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		many, one := loud(t, &g), loud(t, &g)
		granted := make(chan *Pass, 1000)
		flood(t.Context(), many, 600, quantum-messageCost, granted)
		flood(t.Context(), one, 100, 4*quantum-messageCost, granted)
		got := map[*Flow]int{}
		for range 300 {
			p := <-granted
			got[p.flow] += p.cost
			p.Leave()
			synctest.Wait()
		}
		// The first flow had the window for itself at first.
		if d := got[many] - got[one]; d > window+8*quantum || d < -8*quantum {
			t.Errorf("the flow of many messages got %d bytes, the flow of few large ones %d", got[many], got[one])
		}
		drain(granted, 400)
	})
}

func TestFloodIsSlowWhileQuietFlowsStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		noisy, quiet := loud(t, &g), g.Flow()
		granted := make(chan *Pass, 4000)
		flood(t.Context(), noisy, 4000, quantum-messageCost, granted)
		begun := time.Now()
		drain(granted, 1000)
		if d := time.Since(begun); d != 0 {
			t.Errorf("a flood without other flows took %v", d)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		if _, err := quiet.Enter(ctx, 1); err != nil {
			t.Fatal(err)
		}
		go func() {
			for tick := time.NewTicker(slowFor / 2); ctx.Err() == nil; <-tick.C {
				quiet.Enter(ctx, 1)
			}
		}()
		begun = time.Now()
		drain(granted, 1000)
		least := slowDuration(999*quantum - window) // the next one passes at once
		if d := time.Since(begun); d < least || d > least+time.Second {
			t.Errorf("a flood of %d bytes beside a quiet flow took %v, want %v", 1000*quantum, d, least)
		}
		stop()
		begun = time.Now()
		drain(granted, 2000)
		if d := time.Since(begun); d > 2*slowFor {
			t.Errorf("it took %v after the quiet flow stopped", d)
		}
	})
}

func TestSlowedDownFlowDelaysNoOtherFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		flooded, busy := loud(t, &g), g.Flow()
		granted := make(chan *Pass, 100)
		if _, err := busy.Enter(t.Context(), 100); err != nil { // from here on the flood is slowed down
			t.Fatal(err)
		}
		flood(t.Context(), flooded, 100, window/2, granted)
		drain(granted, 1)
		if p, err := busy.Enter(t.Context(), 2*burst); err != nil || p == nil {
			t.Fatalf("%v, %v: it must be loud", p, err)
		} else {
			p.Leave()
		}
		begun := time.Now()
		for range 10 {
			p, err := busy.Enter(t.Context(), 100)
			if err != nil || p == nil {
				t.Fatalf("%v, %v: it must be loud", p, err)
			}
			p.Leave()
		}
		if d := time.Since(begun); d != 0 {
			t.Errorf("it waited for %v", d)
		}
		drain(granted, 99)
	})
}

func TestWaitingFlowStaysLoud(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		const floods, each = 3, 500
		left := make(chan *Pass, floods*each)
		quiet := g.Flow()
		if _, err := quiet.Enter(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		for range floods {
			f := loud(t, &g)
			go func() {
				for range each {
					p, err := f.Enter(t.Context(), quantum-messageCost)
					if err != nil {
						t.Error(err)
					}
					p.Leave()
					left <- p
				}
			}()
		}
		for i := range floods * each {
			if i%10 == 0 {
				if _, err := quiet.Enter(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
			}
			if p := <-left; p == nil {
				t.Fatalf("message %d was let through as a quiet one's", i)
			}
		}
		if d, least := time.Since(begun), slowDuration((floods*each-1)*quantum); d < least {
			t.Errorf("they took %v, want %v", d, least)
		}
	})
}

func TestSilentFlowBecomesQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		f := loud(t, &g)
		if p, err := f.Enter(t.Context(), 1); err != nil || p == nil {
			t.Errorf("%v, %v: it must still be loud", p, err)
		} else {
			p.Leave()
		}
		<-time.After(time.Second)
		if p, err := f.Enter(t.Context(), 1); err != nil || p != nil {
			t.Errorf("%v, %v: it must be quiet", p, err)
		}
	})
}

func TestCanceledPassTakesNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		f := loud(t, &g)
		granted := make(chan *Pass, 100)
		flood(t.Context(), f, window/quantum, quantum, granted)
		ctx, cancel := context.WithCancel(t.Context())
		flood(ctx, f, 10, quantum, granted)
		cancel()
		synctest.Wait()
		flood(t.Context(), f, 10, quantum, granted)
		drain(granted, window/quantum+10)
		if g.inFlight != 0 || len(g.round) != 0 || len(f.waiting) != 0 {
			t.Errorf("%d bytes in flight, %d flows and %d messages wait", g.inFlight, len(g.round), len(f.waiting))
		}
	})
}
