// franz-go: pure Go, one client for everything, balancers of its own.
package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type franz struct{ bootstrap string }

var franzCodecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

var franzBalancers = map[string]func() kgo.GroupBalancer{
	"range": kgo.RangeBalancer, "roundrobin": kgo.RoundRobinBalancer, "sticky": kgo.StickyBalancer,
	"cooperative-sticky": kgo.CooperativeStickyBalancer,
}

func (f *franz) client(options ...kgo.Opt) (*kgo.Client, error) {
	options = append(options, kgo.SeedBrokers(strings.Split(f.bootstrap, ",")...))
	return kgo.NewClient(append(options, franzSecurity()...)...)
}

func within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

func (f *franz) create(topic string, partitions int32, configs map[string]string) error {
	made, err := f.client()
	if err != nil {
		return err
	}
	defer made.Close()
	values := map[string]*string{}
	for key, value := range configs {
		values[key] = &value
	}
	until, done := within()
	defer done()
	_, err = kadm.NewClient(made).CreateTopic(until, partitions, 1, values, topic)
	return err
}

func (f *franz) produce(topic, codec string, records []record) ([]int64, error) {
	made, err := f.client(
		kgo.ProducerBatchCompression(franzCodecs[codec]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(8<<20),
		kgo.ProducerLinger(20*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer made.Close()
	sent := make([]*kgo.Record, len(records))
	for i, each := range records {
		sent[i] = &kgo.Record{
			Topic: topic, Partition: each.Partition, Key: each.Key, Value: each.Value,
			Timestamp: time.UnixMilli(each.Timestamp),
		}
		for _, one := range each.Headers {
			sent[i].Headers = append(sent[i].Headers, kgo.RecordHeader{Key: one.Key, Value: one.Value})
		}
	}
	until, done := within()
	defer done()
	if err := made.ProduceSync(until, sent...).FirstErr(); err != nil {
		return nil, err
	}
	offsets := make([]int64, len(sent))
	for i, each := range sent {
		offsets[i] = each.Offset
	}
	return offsets, nil
}

func franzRecords(fetches kgo.Fetches) []record {
	found := []record{}
	fetches.EachRecord(func(each *kgo.Record) {
		one := record{
			Topic: each.Topic, Partition: each.Partition, Offset: each.Offset, Key: each.Key,
			Value: each.Value, Timestamp: each.Timestamp.UnixMilli(), Headers: []header{},
		}
		for _, pair := range each.Headers {
			one.Headers = append(one.Headers, header{pair.Key, pair.Value})
		}
		found = append(found, one)
	})
	return found
}

func (f *franz) read(wanted command) ([]record, error) {
	level, count := kgo.ReadUncommitted(), wanted.Count
	if wanted.Committed {
		level = kgo.ReadCommitted()
	}
	made, err := f.client(
		kgo.FetchIsolationLevel(level),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
			wanted.Topic: {wanted.Partition: kgo.NewOffset().At(wanted.Offset)},
		}),
	)
	if err != nil {
		return nil, err
	}
	defer made.Close()
	until, done := within()
	defer done()
	found := []record{}
	for len(found) < count {
		fetches := made.PollFetches(until)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%d of %d records: %w", len(found), count, err)
		}
		found = append(found, franzRecords(fetches)...)
	}
	return found[:count], nil
}

func (f *franz) offsetAt(topic string, number int32, timestamp int64) (int64, error) {
	made, err := f.client()
	if err != nil {
		return -1, err
	}
	defer made.Close()
	until, done := within()
	defer done()
	listed, err := kadm.NewClient(made).ListOffsetsAfterMilli(until, timestamp, topic)
	if err != nil {
		return -1, err
	}
	found, ok := listed.Lookup(topic, number)
	if !ok {
		return -1, fmt.Errorf("no answer for %s-%d", topic, number)
	}
	return found.Offset, found.Err
}

type franzMember struct {
	client   *kgo.Client
	holdings *holdings
	stop     context.CancelFunc
	stopped  chan struct{}
}

func (f *franz) join(wanted command) (member, error) {
	holds := newHoldings()
	options := []kgo.Opt{
		kgo.ConsumerGroup(wanted.Group),
		kgo.ConsumeTopics(wanted.Topics...),
		kgo.Balancers(franzBalancers[wanted.Strategy]()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.HeartbeatInterval(300 * time.Millisecond),
		kgo.SessionTimeout(sessionTimeout),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
			holds.add(parts)
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
			holds.remove(parts)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
			holds.remove(parts)
		}),
	}
	if wanted.AutoCommitMs > 0 {
		options = append(options, kgo.AutoCommitInterval(time.Duration(wanted.AutoCommitMs)*time.Millisecond))
	} else {
		options = append(options, kgo.DisableAutoCommit())
	}
	if wanted.Instance != "" {
		options = append(options, kgo.InstanceID(wanted.Instance))
	}
	made, err := f.client(options...)
	if err != nil {
		return nil, err
	}
	until, stop := context.WithCancel(context.Background())
	joined := &franzMember{made, holds, stop, make(chan struct{})}
	go joined.run(until)
	return joined, nil
}

func (m *franzMember) run(until context.Context) {
	defer close(m.stopped)
	for until.Err() == nil {
		m.holdings.receive(franzRecords(m.client.PollFetches(until))...)
	}
}

func (m *franzMember) held() *holdings { return m.holdings }

func (m *franzMember) commit(next map[partition]int64) error {
	offsets := map[string]map[int32]kgo.EpochOffset{}
	for at, offset := range next {
		if offsets[at.topic] == nil {
			offsets[at.topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[at.topic][at.number] = kgo.EpochOffset{Epoch: -1, Offset: offset}
	}
	until, done := within()
	defer done()
	var failed error
	m.client.CommitOffsetsSync(until, offsets, func(
		_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error,
	) {
		failed = err
		if err == nil {
			for _, topic := range answer.Topics {
				for _, each := range topic.Partitions {
					if failed == nil {
						failed = kerr.ErrorForCode(each.ErrorCode)
					}
				}
			}
		}
	})
	return failed
}

func (m *franzMember) seek(at partition, offset int64) error {
	m.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{
		at.topic: {at.number: {Epoch: -1, Offset: offset}},
	})
	return nil
}

func (m *franzMember) leave() error {
	m.stop()
	<-m.stopped
	m.client.Close()
	return nil
}
