// sarama's transactional producer; a record that was put has its response when put returns.
package main

import (
	"time"

	"github.com/IBM/sarama"
)

type saramaTransactional struct{ producer sarama.SyncProducer }

func (s *saramas) transactional(wanted command) (transactional, error) {
	settings := saramaSettings()
	settings.Net.MaxOpenRequests = 1 // or idempotence is refused
	settings.Producer.Idempotent = true
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Producer.Return.Successes = true
	settings.Producer.Partitioner = sarama.NewManualPartitioner
	settings.Producer.Transaction.ID = wanted.ID
	settings.Producer.Transaction.Timeout = time.Duration(wanted.TimeoutMs) * time.Millisecond
	made, err := sarama.NewSyncProducer([]string{s.bootstrap}, settings)
	if err != nil {
		return nil, err
	}
	return &saramaTransactional{made}, nil
}

func (t *saramaTransactional) begin() error { return t.producer.BeginTxn() }

func (t *saramaTransactional) put(topic string, partition int32, value []byte) error {
	_, _, err := t.producer.SendMessage(&sarama.ProducerMessage{
		Topic: topic, Partition: partition, Value: sarama.ByteEncoder(value),
	})
	return err
}

func (t *saramaTransactional) offsets(wanted command) error {
	at := &sarama.PartitionOffsetMetadata{Partition: wanted.Partition, Offset: wanted.Offset}
	offsets := map[string][]*sarama.PartitionOffsetMetadata{wanted.Topic: {at}}
	return t.producer.AddOffsetsToTxn(offsets, wanted.Group)
}

func (t *saramaTransactional) end(commit bool) error {
	if commit {
		return t.producer.CommitTxn()
	}
	return t.producer.AbortTxn()
}

func (t *saramaTransactional) close() error { return t.producer.Close() }
