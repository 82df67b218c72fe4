// franz-go's transactional producer; a record that was put has its response when put returns.
package main

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type franzTransactional struct{ client *kgo.Client }

func (f *franz) transactional(wanted command) (transactional, error) {
	made, err := f.client(
		kgo.TransactionalID(wanted.ID),
		kgo.TransactionTimeout(time.Duration(wanted.TimeoutMs)*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return nil, err
	}
	until, done := within()
	defer done()
	if _, _, err := made.ProducerID(until); err != nil { // or it is asked for at the first record
		made.Close()
		return nil, err
	}
	return &franzTransactional{made}, nil
}

func (t *franzTransactional) begin() error { return t.client.BeginTransaction() }

func (t *franzTransactional) put(topic string, partition int32, value []byte) error {
	until, done := within()
	defer done()
	sent := &kgo.Record{Topic: topic, Partition: partition, Value: value}
	return t.client.ProduceSync(until, sent).FirstErr()
}

// The client has no call for offsets of a group that it is no member of, but sends any request.
func (t *franzTransactional) offsets(wanted command) error {
	until, done := within()
	defer done()
	id, epoch, err := t.client.ProducerID(until)
	if err != nil {
		return err
	}
	name := t.client.OptValue(kgo.TransactionalID).(string)
	add := kmsg.NewPtrAddOffsetsToTxnRequest() // of use to transactions of the first kind only
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = name, id, epoch, wanted.Group
	added, err := add.RequestWith(until, t.client)
	if err == nil {
		err = kerr.ErrorForCode(added.ErrorCode)
	}
	if err != nil {
		return err
	}
	request := kmsg.NewPtrTxnOffsetCommitRequest()
	request.TransactionalID, request.Group = name, wanted.Group
	request.ProducerID, request.ProducerEpoch = id, epoch
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic = wanted.Topic
	partition := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	partition.Partition, partition.Offset = wanted.Partition, wanted.Offset
	topic.Partitions = append(topic.Partitions, partition)
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(until, t.client)
	if err != nil {
		return err
	}
	for _, topic := range answer.Topics {
		for _, each := range topic.Partitions {
			if err := kerr.ErrorForCode(each.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *franzTransactional) end(commit bool) error {
	until, done := within()
	defer done()
	return t.client.EndTransaction(until, kgo.TransactionEndTry(commit))
}

func (t *franzTransactional) close() error {
	t.client.Close()
	return nil
}
