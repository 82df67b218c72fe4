// A copier by franz-go: tests/exactly_once/copiers/__init__.py says what it does and prints.
//
//	agent copy HOST:PORT TRANSACTIONAL_ID GROUP FROM TO
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	endedByAnError = 3
	copiedMax      = 50
	copierSession  = 2 * time.Second
)

var steps = bufio.NewReader(os.Stdin)

func step(name string) {
	fmt.Println(name)
	if _, err := steps.ReadString('\n'); err != nil {
		os.Exit(0)
	}
}

func copyRecords(words []string) {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(words[0], ",")...),
		kgo.TransactionalID(words[1]),
		kgo.TransactionTimeout(10*time.Second),
		kgo.ConsumerGroup(words[2]),
		kgo.ConsumeTopics(words[3]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(copierSession),
		kgo.HeartbeatInterval(copierSession/4),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	)
	for err == nil {
		fetches := session.Client().PollRecords(context.Background(), copiedMax)
		if fetches.NumRecords() == 0 {
			continue // an error of a fetch is tried again by the client
		}
		err = copyOnce(session, fetches, words[4])
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(endedByAnError)
}

func copyOnce(session *kgo.GroupTransactSession, fetches kgo.Fetches, to string) error {
	if err := session.Begin(); err != nil {
		return err
	}
	step("taken")
	until, done := within()
	defer done()
	var sent []*kgo.Record
	fetches.EachRecord(func(each *kgo.Record) {
		sent = append(sent, &kgo.Record{Topic: to, Partition: each.Partition, Value: each.Value})
	})
	if err := session.ProduceSync(until, sent...).FirstErr(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		_, err := session.End(until, kgo.TryAbort)
		return err
	}
	step("sent")
	committed, err := session.End(until, kgo.TryCommit)
	if err == nil && committed {
		step("committed")
	}
	return err
}
