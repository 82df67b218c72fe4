// sarama: pure Go, the oldest of Go's clients; its groups are sessions that end at each rebalance.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

type saramas struct{ bootstrap string }

var saramaCodecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

var saramaStrategies = map[string]func() sarama.BalanceStrategy{
	"range": sarama.NewBalanceStrategyRange, "roundrobin": sarama.NewBalanceStrategyRoundRobin,
	"sticky": sarama.NewBalanceStrategySticky,
}

func saramaSettings() *sarama.Config {
	settings := sarama.NewConfig()
	settings.ClientID = "sarama-agent"
	settings.Version = sarama.MaxVersion
	saramaSecurity(settings)
	return settings
}

func (s *saramas) create(topic string, partitions int32, configs map[string]string) error {
	admin, err := sarama.NewClusterAdmin([]string{s.bootstrap}, saramaSettings())
	if err != nil {
		return err
	}
	defer admin.Close()
	entries := map[string]*string{}
	for key, value := range configs {
		entries[key] = &value
	}
	wanted := &sarama.TopicDetail{
		NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: entries,
	}
	return admin.CreateTopic(topic, wanted, false)
}

func (s *saramas) produce(topic, codec string, records []record) ([]int64, error) {
	settings := saramaSettings()
	settings.Producer.Compression = saramaCodecs[codec]
	settings.Producer.Partitioner = sarama.NewManualPartitioner
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Producer.Return.Successes = true
	settings.Producer.MaxMessageBytes = 8 << 20
	settings.Producer.Idempotent = true
	settings.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer([]string{s.bootstrap}, settings)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	sent := make([]*sarama.ProducerMessage, len(records))
	for i, each := range records {
		sent[i] = &sarama.ProducerMessage{
			Topic: topic, Partition: each.Partition, Timestamp: time.UnixMilli(each.Timestamp),
		}
		if each.Key != nil {
			sent[i].Key = sarama.ByteEncoder(each.Key)
		}
		if each.Value != nil {
			sent[i].Value = sarama.ByteEncoder(each.Value)
		}
		for _, one := range each.Headers {
			pair := sarama.RecordHeader{Key: []byte(one.Key), Value: one.Value}
			sent[i].Headers = append(sent[i].Headers, pair)
		}
	}
	if err := producer.SendMessages(sent); err != nil {
		return nil, err
	}
	offsets := make([]int64, len(sent))
	for i, each := range sent {
		offsets[i] = each.Offset
	}
	return offsets, nil
}

func saramaRecord(each *sarama.ConsumerMessage) record {
	one := record{
		Topic: each.Topic, Partition: each.Partition, Offset: each.Offset, Key: each.Key,
		Value: each.Value, Timestamp: each.Timestamp.UnixMilli(), Headers: []header{},
	}
	for _, pair := range each.Headers {
		one.Headers = append(one.Headers, header{string(pair.Key), pair.Value})
	}
	return one
}

func (s *saramas) read(wanted command) ([]record, error) {
	settings := saramaSettings()
	if wanted.Committed {
		settings.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer([]string{s.bootstrap}, settings)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	stream, err := consumer.ConsumePartition(wanted.Topic, wanted.Partition, wanted.Offset)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	found, count, give_up := []record{}, wanted.Count, time.After(patience)
	for len(found) < count {
		select {
		case each := <-stream.Messages():
			found = append(found, saramaRecord(each))
		case <-give_up:
			return nil, fmt.Errorf("%d of %d records after %v", len(found), count, patience)
		}
	}
	return found, nil
}

func (s *saramas) offsetAt(topic string, number int32, timestamp int64) (int64, error) {
	made, err := sarama.NewClient([]string{s.bootstrap}, saramaSettings())
	if err != nil {
		return -1, err
	}
	defer made.Close()
	return made.GetOffset(topic, number, timestamp)
}

type saramaMember struct {
	group    sarama.ConsumerGroup
	holdings *holdings
	marks    bool // automatic commits: a record counts when it was received
	session  chan sarama.ConsumerGroupSession
	stop     context.CancelFunc
	stopped  chan struct{}
}

func (s *saramas) write(command) (writer, error) { return nil, errUnsupported }

func (s *saramas) join(wanted command) (member, error) {
	settings := saramaSettings()
	settings.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{
		saramaStrategies[wanted.Strategy](),
	}
	settings.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	settings.Consumer.Group.Session.Timeout = sessionTimeout
	settings.Consumer.Group.InstanceId = wanted.Instance
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	settings.Consumer.Offsets.AutoCommit.Enable = wanted.AutoCommitMs > 0
	if wanted.AutoCommitMs > 0 {
		settings.Consumer.Offsets.AutoCommit.Interval =
			time.Duration(wanted.AutoCommitMs) * time.Millisecond
	}
	group, err := sarama.NewConsumerGroup([]string{s.bootstrap}, wanted.Group, settings)
	if err != nil {
		return nil, err
	}
	until, stop := context.WithCancel(context.Background())
	joined := &saramaMember{
		group, newHoldings(), wanted.AutoCommitMs > 0,
		make(chan sarama.ConsumerGroupSession, 1), stop, make(chan struct{}),
	}
	go func() {
		defer close(joined.stopped)
		for until.Err() == nil {
			if err := group.Consume(until, wanted.Topics, joined); err != nil && until.Err() == nil {
				time.Sleep(100 * time.Millisecond) // the broker is away: as its documentation advises
			}
		}
	}()
	return joined, nil
}

func (m *saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	m.session <- session
	m.holdings.add(session.Claims())
	return nil
}

func (m *saramaMember) Cleanup(session sarama.ConsumerGroupSession) error {
	<-m.session
	m.holdings.remove(session.Claims())
	return nil
}

func (m *saramaMember) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	for each := range claim.Messages() {
		m.holdings.receive(saramaRecord(each))
		if m.marks {
			session.MarkMessage(each, "")
		}
	}
	return nil
}

func (m *saramaMember) held() *holdings { return m.holdings }

func (m *saramaMember) commit(next map[partition]int64) error {
	select {
	case session := <-m.session:
		defer func() { m.session <- session }()
		for at, offset := range next {
			session.MarkOffset(at.topic, at.number, offset, "")
		}
		session.Commit()
		return nil
	case <-time.After(patience):
		return fmt.Errorf("not in a group for %v", patience)
	}
}

func (m *saramaMember) seek(at partition, offset int64) error { return errUnsupported }

func (m *saramaMember) leave() error {
	m.stop()
	<-m.stopped
	return m.group.Close()
}
