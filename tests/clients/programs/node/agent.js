// An agent for kafkajs: commands in JSON lines on stdin, answers on stdout.
//
//     node agent.js HOST:PORT
//
// tests/clients/agents/driver.py says what each command means. kafkajs brings gzip; the other codecs
// are plugged in as its documentation says, from packages that bring what they need.
"use strict";

const { readFileSync } = require("node:fs");
const readline = require("node:readline");
const { randomUUID } = require("node:crypto");
const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = require("kafkajs");
const snappy = require("kafkajs-snappy");
const lz4 = require("lz4-napi");
const zstd = require("@bokuweb/zstd-wasm");

const PATIENCE_MS = 60_000;

CompressionCodecs[CompressionTypes.Snappy] = snappy;
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: (buffer) => lz4.decompressFrame(buffer),
});
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
});

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};

function made(own) {
  return new Kafka({
    clientId: "kafkajs-agent",
    brokers: [process.argv[2]],
    logLevel: logLevel.ERROR,
    retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 60 },
    logCreator: () => ({ label, log }) => process.stderr.write(`${label} ${JSON.stringify(log)}\n`),
    ...own,
  });
}

let kafka = made({});
let secured = {};

// The settings of clients for a listener with TLS and logins.
function security({ ca, mechanism, user, password, token }) {
  const name = mechanism.toLowerCase();
  const login = name === "oauthbearer"
    ? { oauthBearerProvider: async () => ({ value: token }) }
    : { username: user, password };
  return { ssl: { ca: [readFileSync(ca)] }, sasl: { mechanism: name, ...login } };
}

const bytes = (text) => (text === null ? null : Buffer.from(text, "base64"));
const text = (data) => (data === null || data === undefined ? null : Buffer.from(data).toString("base64"));

// kafkajs holds headers in an object: a name that comes twice has a list of values.
function packed(headers) {
  const found = {};
  for (const { key, value } of headers) {
    found[key] = key in found ? [].concat(found[key], bytes(value)) : bytes(value);
  }
  return found;
}

function unpacked(headers) {
  return Object.entries(headers || {}).flatMap(([key, values]) =>
    [].concat(values).map((value) => ({ key, value: text(value) })));
}

function shown(topic, partition, message) {
  return {
    topic,
    partition,
    offset: Number(message.offset),
    timestamp: Number(message.timestamp),
    key: text(message.key),
    value: text(message.value),
    headers: unpacked(message.headers),
  };
}

async function withAdmin(work) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await work(admin);
  } finally {
    await admin.disconnect();
  }
}

class Member {
  constructor(wanted) {
    this.assigned = new Set();
    this.revoked = [];
    this.untaken = [];
    this.next = new Map();
    this.automatic = wanted.auto_commit_ms || 0;
    this.consumer = kafka.consumer({
      groupId: wanted.group,
      heartbeatInterval: 300,
      sessionTimeout: 6_000,
      maxWaitTimeInMs: 100,
      retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 60 },
    });
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => this.joined(payload));
    this.consumer.on(this.consumer.events.REBALANCING, () => this.left());
  }

  joined({ memberAssignment }) {
    this.left();
    for (const [topic, partitions] of Object.entries(memberAssignment)) {
      for (const partition of partitions) this.assigned.add(JSON.stringify([topic, partition]));
    }
  }

  left() {
    this.revoked.push(...this.assigned);
    this.assigned.clear();
    this.untaken = [];
    this.next.clear();
  }

  async start(topics) {
    await this.consumer.connect();
    await this.consumer.subscribe({ topics, fromBeginning: true });
    const settings = this.automatic
      ? { autoCommit: true, autoCommitInterval: this.automatic }
      : { autoCommit: false };
    await this.consumer.run({
      ...settings,
      partitionsConsumedConcurrently: 4,
      eachBatch: async ({ batch, resolveOffset, commitOffsetsIfNecessary }) => {
        const at = JSON.stringify([batch.topic, batch.partition]);
        for (const message of batch.messages) {
          if (!this.assigned.has(at)) return;
          this.untaken.push(shown(batch.topic, batch.partition, message));
          resolveOffset(message.offset);
        }
        if (this.automatic) await commitOffsetsIfNecessary();
      },
    });
  }

  show() {
    return {
      now: [...this.assigned].map((each) => JSON.parse(each)),
      revoked: this.revoked.map((each) => JSON.parse(each)),
    };
  }

  take() {
    const taken = this.untaken;
    this.untaken = [];
    for (const { topic, partition, offset } of taken) {
      this.next.set(JSON.stringify([topic, partition]), offset + 1);
    }
    return taken;
  }

  async commit() {
    const offsets = [...this.next].map(([at, offset]) => {
      const [topic, partition] = JSON.parse(at);
      return { topic, partition, offset: String(offset) };
    });
    if (offsets.length) await this.consumer.commitOffsets(offsets);
    return null;
  }

  seek({ topic, partition, offset }) {
    this.untaken = this.untaken.filter((each) => each.topic !== topic || each.partition !== partition);
    this.next.delete(JSON.stringify([topic, partition]));
    this.consumer.seek({ topic, partition, offset: String(offset) });
    return null;
  }

  async leave() {
    await this.consumer.disconnect();
    return null;
  }
}

// A producer with a transactional id: each put is acknowledged before the next command. kafkajs asks
// for the producer's id and epoch when its first transaction begins, so that one begins with it.
class Transactional {
  constructor({ id, timeout_ms: timeoutMs }) {
    this.producer = kafka.producer({
      allowAutoTopicCreation: false,
      idempotent: true,
      maxInFlightRequests: 1,
      transactionalId: id,
      transactionTimeout: timeoutMs,
    });
    this.open = null;
  }

  async start() {
    await this.producer.connect();
    this.open = await this.producer.transaction();
  }

  async begin() {
    if (!this.open.isActive()) this.open = await this.producer.transaction();
  }

  async put({ topic, partition, value }) {
    await this.open.send({ topic, acks: -1, messages: [{ partition, value: bytes(value) }] });
  }

  async offsets({ group, topic, partition, offset }) {
    const topics = [{ topic, partitions: [{ partition, offset: String(offset) }] }];
    await this.open.sendOffsets({ consumerGroupId: group, topics });
  }

  async end({ commit }) {
    await (commit ? this.open.commit() : this.open.abort());
  }

  async close() {
    await this.producer.disconnect();
  }
}

const members = new Map();
const producers = new Map();

async function transact(wanted) {
  await producers.get(wanted.name)[wanted.op](wanted);
  return null;
}

const commands = {
  version: async () => require("kafkajs/package.json").version,

  secure: async (wanted) => {
    secured = security(wanted);
    kafka = made(secured);
    return null;
  },

  connect: async () => {
    const admin = made({ ...secured, retry: { retries: 0 } }).admin();
    await admin.connect();
    await admin.disconnect();
    return null;
  },

  create: ({ topic, partitions, configs }) =>
    withAdmin(async (admin) => {
      const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }));
      const topics = [{ topic, numPartitions: partitions, replicationFactor: 1, configEntries }];
      await admin.createTopics({ topics, waitForLeaders: true });
      return null;
    }),

  produce: async ({ topic, codec, records }) => {
    const producer = kafka.producer({ allowAutoTopicCreation: false });
    await producer.connect();
    try {
      const messages = records.map((each) => ({
        partition: each.partition,
        key: bytes(each.key),
        value: bytes(each.value),
        headers: packed(each.headers),
        timestamp: String(each.timestamp),
      }));
      const answers = await producer.send({ topic, acks: -1, compression: CODECS[codec], messages });
      const next = new Map(answers.map((each) => [each.partition, Number(each.baseOffset)]));
      return records.map(({ partition }) => {
        const offset = next.get(partition);
        next.set(partition, offset + 1);
        return offset;
      });
    } finally {
      await producer.disconnect();
    }
  },

  // kafkajs reads in groups only: one of its own, at the wanted offset.
  read: async ({ topic, partition, offset, count, committed }) => {
    const consumer = kafka.consumer({
      groupId: `read-${randomUUID()}`,
      maxWaitTimeInMs: 100,
      readUncommitted: !committed,
    });
    await consumer.connect();
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    const found = [];
    let giveUp;
    try {
      await new Promise((resolve, reject) => {
        giveUp = setTimeout(() => reject(new Error(`${found.length} of ${count} records`)), PATIENCE_MS);
        consumer.run({
          autoCommit: false,
          eachMessage: async (each) => {
            if (each.partition !== partition || Number(each.message.offset) < offset) return;
            found.push(shown(topic, partition, each.message));
            if (found.length === count) resolve();
          },
        }).catch(reject);
        consumer.seek({ topic, partition, offset: String(offset) });
      });
    } finally {
      clearTimeout(giveUp);
      await consumer.disconnect();
    }
    return found.slice(0, count);
  },

  offset_at: ({ topic, partition, timestamp }) =>
    withAdmin(async (admin) => {
      const answers = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp);
      return Number(answers.find((each) => each.partition === partition).offset);
    }),

  transactional: async (wanted) => {
    const made = new Transactional(wanted);
    await made.start();
    producers.set(wanted.name, made);
    return null;
  },

  begin: transact,
  put: transact,
  offsets: transact,
  end: transact,
  close: transact,

  join: async (wanted) => {
    const member = new Member(wanted);
    members.set(wanted.name, member);
    await member.start(wanted.topics);
    return null;
  },

  assigned: async ({ name }) => members.get(name).show(),
  take: async ({ name }) => members.get(name).take(),
  commit: ({ name }) => members.get(name).commit(),
  seek: async (wanted) => members.get(wanted.name).seek(wanted),
  leave: async ({ name }) => {
    const member = members.get(name);
    members.delete(name);
    return member.leave();
  },
};

async function main() {
  await zstd.init();
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let answer;
    try {
      const wanted = JSON.parse(line);
      answer = { ok: await commands[wanted.op](wanted) };
    } catch (error) {
      answer = { error: String(error) };
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
  }
  process.exit(0);
}

main();
