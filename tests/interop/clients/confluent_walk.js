// Walks the API of confluent-kafka-javascript against one broker. `node confluent_walk.js`, with BROKER and, for a
// secured one, MECHANISM, USERNAME, PASSWORD and CA (a file); PROTOCOL is that of groups, classic or consumer.
// Prints "ok NAME" or "not ok NAME: WHY" for each part, and ends with "end".

'use strict'

const assert = require('node:assert/strict')
const confluent = require('@confluentinc/kafka-javascript')

const { Kafka, logLevel, ErrorCodes, CompressionTypes, IsolationLevel } = confluent.KafkaJS
const { ConsumerGroupStates, ConsumerGroupTypes } = confluent.AdminClient

const common = { 'bootstrap.servers': process.env.BROKER, log_level: 0 }
if (process.env.MECHANISM) {
  const { MECHANISM, USERNAME, PASSWORD, CA } = process.env
  Object.assign(common, {
    'security.protocol': 'sasl_ssl',
    'sasl.mechanisms': MECHANISM.toUpperCase(),
    'sasl.username': USERNAME,
    'sasl.password': PASSWORD,
    'ssl.ca.location': CA,
  })
}
const protocol = process.env.PROTOCOL ?? 'classic'
const kafka = new Kafka({ kafkaJS: { logLevel: logLevel.NOTHING }, ...common })
const admin = kafka.admin()
const patience = 60000

let number = 0
const unused = name => `${name}-${process.pid}-${number++}`

async function topicOf(partitions, configEntries = []) {
  const topic = unused('topic')
  assert.equal(await admin.createTopics({ topics: [{ topic, numPartitions: partitions, configEntries }] }), true)
  await until('the topic is there', async () => (await admin.listTopics()).includes(topic))
  return topic
}

async function withProducer(options, use) {
  const producer = kafka.producer({ 'linger.ms': 0, ...options })
  await producer.connect()
  try {
    return await use(producer)
  } finally {
    await producer.disconnect()
  }
}

const send = (topic, messages, options = {}) => withProducer(options, p => p.send({ topic, messages }))

function consumerOf(options = {}, kafkaJS = {}) {
  return kafka.consumer({
    'group.id': unused('group'),
    'group.protocol': protocol,
    'auto.offset.reset': 'earliest',
    ...options,
    kafkaJS,
  })
}

// Runs a consumer until it has `count` messages.
async function consume(topics, count, options = {}, running = {}, kafkaJS = {}) {
  const consumer = consumerOf(options, kafkaJS)
  await consumer.connect()
  await consumer.subscribe({ topics })
  const got = []
  const eachMessage = async ({ topic, partition, message }) => void got.push({ topic, partition, ...message })
  await consumer.run({ eachMessage, ...running })
  try {
    await until(`${count} came`, () => got.length >= count)
  } finally {
    await consumer.disconnect()
  }
  return got
}

async function rejects(promise, code) {
  await assert.rejects(promise, error => {
    const inner = error.groups?.[0]?.error ?? error.errors?.[0] ?? error
    assert.equal(inner.code, code, String(inner))
    return true
  })
}

async function until(what, condition) {
  const deadline = Date.now() + patience
  while (!(await condition())) {
    assert.ok(Date.now() < deadline, `not in time: ${what}`)
    await new Promise(resolve => setTimeout(resolve, 50))
  }
}

const text = messages => messages.map(({ value }) => value.toString())

const parts = {
  async 'topics are created, listed, described and deleted'() {
    const topic = await topicOf(2)
    assert.equal(await admin.createTopics({ topics: [{ topic }] }), false)
    const [described] = await admin.fetchTopicMetadata({ topics: [topic], includeAuthorizedOperations: true })
    assert.deepEqual(described.partitions.map(p => p.partitionId).sort(), [0, 1])
    assert.deepEqual(described.partitions[0].isr, described.partitions[0].replicas)
    assert.ok(described.authorizedOperations.length > 0)
    await admin.deleteTopics({ topics: [topic] })
    await until('it is gone', async () => !(await admin.listTopics()).includes(topic))
    await rejects(admin.deleteTopics({ topics: [topic] }), ErrorCodes.ERR_UNKNOWN_TOPIC_OR_PART)
  },

  async 'a topic of three replicas is refused'() {
    const asked = { topics: [{ topic: unused('topic'), replicationFactor: 3 }] }
    await rejects(admin.createTopics(asked), ErrorCodes.ERR_INVALID_REPLICATION_FACTOR)
  },

  async 'a bad name is refused'() {
    await rejects(admin.createTopics({ topics: [{ topic: 'a b' }] }), ErrorCodes.ERR_TOPIC_EXCEPTION)
  },

  async 'a bad config is refused'() {
    const configEntries = [{ name: 'retention.ms', value: 'soon' }]
    const asked = { topics: [{ topic: unused('topic'), configEntries }] }
    await rejects(admin.createTopics(asked), ErrorCodes.ERR_INVALID_CONFIG)
  },

  async 'offsets of a topic, and by time'() {
    const topic = await topicOf(1, [{ name: 'retention.ms', value: '-1' }])
    const messages = [1000, 2000, 3000].map(time => ({ value: 'v', timestamp: String(time) }))
    await send(topic, messages)
    const isolationLevel = IsolationLevel.READ_COMMITTED
    const [{ offset, high, low }] = await admin.fetchTopicOffsets(topic, { isolationLevel })
    assert.deepEqual([offset, high, low], ['3', '3', '0'])
    const [found] = await admin.fetchTopicOffsetsByTimestamp(topic, 1500)
    assert.equal(found.offset, '1')
    const [none] = await admin.fetchTopicOffsetsByTimestamp(topic, 9000)
    assert.equal(none.offset, '3')
  },

  async 'records are deleted'() {
    const topic = await topicOf(1)
    await send(topic, [{ value: 'a' }, { value: 'b' }])
    const [deleted] = await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '1' }] })
    assert.equal(deleted.lowWatermark, 1)
    assert.equal((await admin.fetchTopicOffsets(topic))[0].low, '1')
    assert.deepEqual(text(await consume([topic], 1)), ['b'])
  },

  async 'keys, values, headers, partitions and times come back'() {
    const topic = await topicOf(2)
    const headers = { one: 'x', two: ['y', 'z'] }
    const sent = { key: 'k', value: 'v', headers, partition: 1, timestamp: '1700000000000' }
    const [where] = await send(topic, [sent])
    assert.deepEqual([where.errorCode, where.partition, where.baseOffset], [0, 1, '0'])
    const [got] = await consume([topic], 1)
    assert.deepEqual([got.partition, got.offset, got.timestamp], [1, '0', '1700000000000'])
    assert.deepEqual([got.key.toString(), got.value.toString()], ['k', 'v'])
    assert.deepEqual([got.headers.one.toString(), got.headers.two.map(String)], ['x', ['y', 'z']])
  },

  async 'nulls and empty values'() {
    const topic = await topicOf(1)
    await send(topic, [{ key: null, value: null }, { key: '', value: '' }])
    const got = await consume([topic], 2)
    assert.deepEqual(got.map(({ value }) => value), [null, null]) // the client reads an empty value as null
  },

  ...Object.fromEntries(
    ['gzip', 'snappy', 'lz4'].map(codec => [
      codec,
      async () => {
        const topic = await topicOf(1)
        const values = Array.from({ length: 500 }, (_, i) => `value ${i}`)
        await send(topic, values.map(value => ({ value })), { 'compression.codec': codec, 'linger.ms': 20 })
        assert.deepEqual(text(await consume([topic], 500)), values)
      },
    ])
  ),

  async 'acks 0, 1 and all'() {
    const topic = await topicOf(1)
    for (const acks of [0, 1, -1]) await send(topic, [{ value: `acks ${acks}` }], { acks })
    assert.deepEqual(text(await consume([topic], 3)), ['acks 0', 'acks 1', 'acks -1'])
  },

  async 'several topics in one batch'() {
    const topics = [await topicOf(1), await topicOf(1)]
    const topicMessages = topics.map(topic => ({ topic, messages: [{ value: topic }] }))
    await withProducer({}, producer => producer.sendBatch({ topicMessages }))
    assert.deepEqual(text(await consume(topics, 2)).sort(), [...topics].sort())
  },

  async 'an idempotent producer keeps the order'() {
    const topic = await topicOf(1)
    const values = Array.from({ length: 300 }, (_, i) => String(i))
    await withProducer({ 'enable.idempotence': true }, async producer => {
      await Promise.all(values.map(value => producer.send({ topic, messages: [{ value }] })))
    })
    assert.deepEqual(text(await consume([topic], 300)), values)
  },

  async 'a message that is too large is refused'() {
    const topic = await topicOf(1, [{ name: 'max.message.bytes', value: '1000' }])
    await rejects(send(topic, [{ value: 'x'.repeat(5000) }]), ErrorCodes.ERR_MSG_SIZE_TOO_LARGE)
  },

  async 'what is committed is read, what is aborted is not'() {
    const topic = await topicOf(1)
    await withProducer({ 'transactional.id': unused('id') }, async producer => {
      for (const [value, end] of [['aborted', 'abort'], ['committed', 'commit']]) {
        const transaction = await producer.transaction()
        assert.equal(transaction.isActive(), true)
        await transaction.send({ topic, messages: [{ value }] })
        await transaction[end]()
      }
    })
    assert.deepEqual(text(await consume([topic], 1)), ['committed'])
    const all = await consume([topic], 2, { 'isolation.level': 'read_uncommitted' })
    assert.deepEqual(text(all), ['aborted', 'committed'])
  },

  async 'a second producer of a transactional id fences the first'() {
    const topic = await topicOf(1)
    const options = { 'transactional.id': unused('id') }
    await withProducer(options, async first => {
      const transaction = await first.transaction()
      await transaction.send({ topic, messages: [{ value: 'of the first' }] })
      await withProducer(options, async () => {
        await rejects(transaction.commit(), ErrorCodes.ERR__FENCED)
      })
    })
  },

  async 'offsets in a transaction'() {
    const [source, sink] = [await topicOf(1), await topicOf(1)]
    const groupId = unused('group')
    await send(source, [{ value: 'a' }, { value: 'b' }])
    const options = { 'group.id': groupId, 'enable.auto.commit': false }
    await withProducer({ 'transactional.id': unused('id') }, async producer => {
      const consumer = consumerOf(options)
      await consumer.connect()
      await consumer.subscribe({ topics: [source] })
      let copied = 0
      const eachMessage = async ({ topic, partition, message }) => {
        if (message.offset !== '0') return
        const transaction = await producer.transaction()
        await transaction.send({ topic: sink, messages: [{ value: message.value }] })
        const partitions = [{ partition, offset: '1' }]
        await transaction.sendOffsets({ consumer, topics: [{ topic, partitions }] })
        await transaction.commit()
        copied += 1
      }
      await consumer.run({ eachMessage })
      await until('one is copied', () => copied === 1)
      await consumer.disconnect()
    })
    const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [source], requireStableOffsets: true })
    assert.equal(partitions[0].offset, '1')
    assert.deepEqual(text(await consume([sink], 1)), ['a'])
    assert.deepEqual(text(await consume([source], 1, options)), ['b'])
  },

  async 'a group is listed, described and deleted'() {
    const topic = await topicOf(1)
    const groupId = unused('group')
    const consumer = consumerOf({ 'group.id': groupId })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic] })
    await consumer.run({ eachMessage: async () => {} })
    await until('it has the partition', () => consumer.assignment().length === 1)
    assert.deepEqual(consumer.assignment(), [{ topic, partition: 0 }])
    const wanted = { matchConsumerGroupStates: [ConsumerGroupStates.STABLE] }
    const seen = async () => (await admin.listGroups(wanted)).groups.find(group => group.groupId === groupId)
    await until('it is stable', seen)
    assert.equal((await seen()).type, ConsumerGroupTypes[protocol.toUpperCase()])
    const [described] = (await admin.describeGroups([groupId], { includeAuthorizedOperations: true })).groups
    assert.deepEqual([described.state, described.members.length], [ConsumerGroupStates.STABLE, 1])
    assert.equal(described.members[0].assignment.topicPartitions[0].topic, topic)
    await rejects(admin.deleteGroups([groupId]), ErrorCodes.ERR_NON_EMPTY_GROUP)
    await consumer.disconnect()
    await admin.deleteGroups([groupId])
    assert.ok(!(await admin.listGroups()).groups.some(group => group.groupId === groupId))
    await rejects(admin.deleteGroups([groupId]), ErrorCodes.ERR_GROUP_ID_NOT_FOUND)
  },

  async 'two members share the partitions, and one takes over'() {
    const topic = await topicOf(4)
    const groupId = unused('group')
    const start = async () => {
      const consumer = consumerOf({ 'group.id': groupId })
      await consumer.connect()
      await consumer.subscribe({ topics: [topic] })
      await consumer.run({ eachMessage: async () => {} })
      return consumer
    }
    const owned = consumer => consumer.assignment().map(({ partition }) => partition)
    const [first, second] = [await start(), await start()]
    await until('each has two', () => owned(first).length === 2 && owned(second).length === 2)
    assert.deepEqual([...owned(first), ...owned(second)].sort(), [0, 1, 2, 3])
    await first.disconnect()
    await until('the second has all', () => owned(second).length === 4)
    await second.disconnect()
  },

  async 'a group goes on where it committed'() {
    const topic = await topicOf(1)
    const options = { 'group.id': unused('group') }
    await send(topic, [{ value: 'a' }, { value: 'b' }])
    assert.deepEqual(text(await consume([topic], 2, options)), ['a', 'b'])
    await send(topic, [{ value: 'c' }])
    assert.deepEqual(text(await consume([topic], 1, options)), ['c'])
  },

  async 'offsets are committed by hand, and read back'() {
    const topic = await topicOf(1)
    const groupId = unused('group')
    await send(topic, [{ value: 'a' }, { value: 'b' }])
    const consumer = consumerOf({ 'group.id': groupId, 'enable.auto.commit': false })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic] })
    let done = false
    const eachMessage = async ({ message }) => {
      if (message.offset !== '0') return
      await consumer.commitOffsets([{ topic, partition: 0, offset: '1', leaderEpoch: 0, metadata: 'by hand' }])
      done = true
    }
    await consumer.run({ eachMessage })
    await until('it is committed', () => done)
    const [committed] = await consumer.committed([{ topic, partition: 0 }], 30000)
    assert.deepEqual([committed.offset, committed.metadata], ['1', 'by hand'])
    await consumer.disconnect()
    const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic] })
    assert.deepEqual([partitions[0].offset, partitions[0].metadata], ['1', 'by hand'])
  },

  async 'whole batches'() {
    const topic = await topicOf(1)
    await send(topic, [{ value: 'a' }, { value: 'b' }, { value: 'c' }])
    const got = []
    const consumer = consumerOf()
    await consumer.connect()
    await consumer.subscribe({ topics: [topic] })
    const eachBatch = async ({ batch, resolveOffset, heartbeat }) => {
      for (const message of batch.messages) {
        got.push(message.value.toString())
        resolveOffset(message.offset)
      }
      await heartbeat()
    }
    await consumer.run({ eachBatch })
    await until('three came', () => got.length === 3)
    await consumer.disconnect()
    assert.deepEqual(got, ['a', 'b', 'c'])
  },

  async 'seek, pause and resume'() {
    const topic = await topicOf(1)
    await send(topic, ['a', 'b', 'c'].map(value => ({ value })))
    const got = []
    const consumer = consumerOf()
    await consumer.connect()
    await consumer.subscribe({ topics: [topic] })
    await consumer.run({ eachMessage: async ({ message }) => void got.push(message.value.toString()) })
    await until('three came', () => got.length === 3)
    consumer.seek({ topic, partition: 0, offset: '1' })
    await until('two came again', () => got.length === 5)
    consumer.pause([{ topic }])
    assert.deepEqual(consumer.paused(), [{ topic, partitions: [0] }])
    await send(topic, [{ value: 'd' }])
    consumer.resume([{ topic }])
    await until('the last came', () => got.length === 6)
    await consumer.disconnect()
    assert.deepEqual(got, ['a', 'b', 'c', 'b', 'c', 'd'])
  },

  async 'topics by a regular expression'() {
    const topic = await topicOf(1)
    await send(topic, [{ value: 'by name' }])
    assert.deepEqual(text(await consume([new RegExp(`^${topic}$`)], 1)), ['by name'])
  },

  async 'a topic that is not there'() {
    const asked = admin.fetchTopicMetadata({ topics: [unused('nowhere')] })
    await rejects(asked, ErrorCodes.ERR_UNKNOWN_TOPIC_OR_PART)
  },

  async 'a full partition in small fetches'() {
    const topic = await topicOf(1)
    const values = Array.from({ length: 200 }, (_, i) => `${i} `.padEnd(1000, 'x'))
    await send(topic, values.map(value => ({ value })))
    const small = { 'max.partition.fetch.bytes': 2000, 'fetch.max.bytes': 5000, 'message.max.bytes': 5000 }
    assert.deepEqual(text(await consume([topic], 200, small)), values)
  },
}

async function walk() {
  await admin.connect()
  for (const [name, part] of Object.entries(parts)) {
    try {
      await part()
      console.log(`ok ${name}`)
    } catch (error) {
      console.log(`not ok ${name}: ${String(error.stack).replaceAll('\n', ' ')}`)
    }
  }
  await admin.disconnect()
  console.log('end')
  process.exit(0)
}

walk()
