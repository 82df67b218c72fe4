// franz-go's producer with its defaults, which are idempotence and acks=all, under way for long.
package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type franzWriter struct {
	client  *kgo.Client
	stop    context.CancelFunc
	stopped chan struct{}

	lock         sync.Mutex
	acknowledged []int
	errors       []string
}

func (f *franz) write(wanted command) (writer, error) {
	made, err := f.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	until, stop := context.WithCancel(context.Background())
	begun := &franzWriter{
		client: made, stop: stop, stopped: make(chan struct{}),
		acknowledged: []int{}, errors: []string{},
	}
	go begun.run(until, wanted)
	return begun, nil
}

func (w *franzWriter) run(until context.Context, wanted command) {
	defer close(w.stopped)
	turns := time.NewTicker(time.Second / time.Duration(wanted.Rate))
	defer turns.Stop()
	for number := 0; ; number++ {
		select {
		case <-until.Done():
			return
		case <-turns.C:
		}
		w.client.Produce(context.Background(), &kgo.Record{
			Topic: wanted.Topic, Partition: int32(number) % wanted.Partitions,
			Value: fmt.Appendf(nil, "%s %d", wanted.Name, number),
		}, func(_ *kgo.Record, err error) { w.note(number, err) })
	}
}

func (w *franzWriter) note(number int, err error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if err != nil {
		w.errors = append(w.errors, fmt.Sprintf("%d: %v", number, err))
	} else {
		w.acknowledged = append(w.acknowledged, number)
	}
}

func (w *franzWriter) written() map[string]any {
	w.lock.Lock()
	defer w.lock.Unlock()
	return map[string]any{"acknowledged": len(w.acknowledged), "errors": append([]string{}, w.errors...)}
}

func (w *franzWriter) finish() (map[string]any, error) {
	w.stop()
	<-w.stopped
	defer w.client.Close()
	until, done := within()
	defer done()
	if err := w.client.Flush(until); err != nil {
		return nil, err
	}
	return map[string]any{"acknowledged": w.acknowledged, "errors": w.errors}, nil
}
