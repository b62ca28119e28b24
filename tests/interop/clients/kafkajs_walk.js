// Walks the API of KafkaJS against one broker. `node kafkajs_walk.js`, with BROKER and, for a secured one, MECHANISM,
// USERNAME, PASSWORD and CA (a file). Prints "ok NAME" or "not ok NAME: WHY" for each part, and ends with "end".

'use strict'

const assert = require('node:assert/strict')
const fs = require('node:fs')
const kafkajs = require('kafkajs')

const { Kafka, logLevel, CompressionTypes, ConfigResourceTypes } = kafkajs
const { AclResourceTypes, AclOperationTypes, AclPermissionTypes, ResourcePatternTypes } = kafkajs

const settings = { clientId: 'walk', brokers: [process.env.BROKER], logLevel: logLevel.NOTHING }
if (process.env.MECHANISM) {
  const { MECHANISM, USERNAME, PASSWORD } = process.env
  settings.sasl = { mechanism: MECHANISM, username: USERNAME, password: PASSWORD }
  settings.ssl = { ca: [fs.readFileSync(process.env.CA, 'utf-8')] }
}
const kafka = new Kafka(settings)
const admin = kafka.admin()
const patience = { timeout: 60000 }

let number = 0
const unused = name => `${name}-${process.pid}-${number++}`

async function topicOf(partitions, configEntries = []) {
  const topic = unused('topic')
  assert.equal(await admin.createTopics({ topics: [{ topic, numPartitions: partitions, configEntries }] }), true)
  return topic
}

async function withProducer(options, use) {
  const producer = kafka.producer(options)
  await producer.connect()
  try {
    return await use(producer)
  } finally {
    await producer.disconnect()
  }
}

const send = (topic, messages, more = {}) => withProducer({}, p => p.send({ topic, messages, ...more }))

// Runs a consumer until it has `count` messages.
async function consume(topics, count, options = {}, running = {}) {
  const consumer = kafka.consumer({ groupId: unused('group'), ...options })
  await consumer.connect()
  await consumer.subscribe({ topics, fromBeginning: true })
  const got = []
  try {
    await new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error(`${got.length} of ${count} came`)), patience.timeout)
      const each = async ({ topic, partition, message }) => {
        got.push({ topic, partition, ...message })
        if (got.length >= count) {
          clearTimeout(late)
          resolve()
        }
      }
      consumer.run({ eachMessage: each, ...running }).catch(reject)
    })
  } finally {
    await consumer.disconnect()
  }
  return got
}

async function rejects(promise, type) {
  await assert.rejects(promise, error => {
    const [inner] = error.errors ?? error.groups?.map(group => group.error) ?? []
    const found = error.type ?? inner?.type ?? error.cause?.type
    assert.equal(found, type, String(error))
    return true
  })
}

async function until(what, condition) {
  const deadline = Date.now() + patience.timeout
  while (!(await condition())) {
    assert.ok(Date.now() < deadline, `not in time: ${what}`)
    await new Promise(resolve => setTimeout(resolve, 50))
  }
}

const text = messages => messages.map(({ value }) => value.toString())

const parts = {
  async 'cluster'() {
    const { brokers, controller, clusterId } = await admin.describeCluster()
    assert.equal(brokers.length, 1)
    assert.equal(brokers[0].nodeId, controller)
    assert.equal(clusterId.length, 22)
  },

  async 'topics are created, listed, described, grown and deleted'() {
    const topic = await topicOf(2)
    assert.equal(await admin.createTopics({ topics: [{ topic }] }), false)
    assert.ok((await admin.listTopics()).includes(topic))
    await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    assert.deepEqual(topics[0].partitions.map(p => p.partitionId).sort(), [0, 1, 2])
    assert.deepEqual(topics[0].partitions[0].isr, topics[0].partitions[0].replicas)
    await admin.deleteTopics({ topics: [topic] })
    assert.ok(!(await admin.listTopics()).includes(topic))
  },

  async 'a topic of three replicas is refused'() {
    const asked = { topics: [{ topic: unused('topic'), replicationFactor: 3 }] }
    await rejects(admin.createTopics(asked), 'INVALID_REPLICATION_FACTOR')
  },

  async 'a bad name is refused'() {
    await rejects(admin.createTopics({ topics: [{ topic: 'a b' }] }), 'INVALID_TOPIC_EXCEPTION')
  },

  async 'configs are described and altered'() {
    const topic = await topicOf(1, [{ name: 'retention.ms', value: '1234567' }])
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
    const asked = { resources: [{ ...resource, configNames: ['retention.ms'] }], includeSynonyms: true }
    const before = (await admin.describeConfigs(asked)).resources[0].configEntries
    assert.equal(before[0].configValue, '1234567')
    const altered = [{ ...resource, configEntries: [{ name: 'retention.ms', value: '7654321' }] }]
    await admin.alterConfigs({ resources: altered })
    const after = (await admin.describeConfigs(asked)).resources[0].configEntries
    assert.equal(after[0].configValue, '7654321')
    const wrong = [{ ...resource, configEntries: [{ name: 'retention.ms', value: 'soon' }] }]
    await rejects(admin.alterConfigs({ resources: wrong }), 'INVALID_CONFIG')
  },

  async 'offsets of a topic, and by time'() {
    const topic = await topicOf(1, [{ name: 'retention.ms', value: '-1' }])
    const messages = [1000, 2000, 3000].map(time => ({ value: 'v', timestamp: String(time) }))
    await send(topic, messages)
    assert.deepEqual(await admin.fetchTopicOffsets(topic), [{ partition: 0, offset: '3', high: '3', low: '0' }])
    assert.deepEqual(await admin.fetchTopicOffsetsByTimestamp(topic, 1500), [{ partition: 0, offset: '1' }])
  },

  async 'records are deleted'() {
    const topic = await topicOf(1)
    await send(topic, [{ value: 'a' }, { value: 'b' }])
    await admin.fetchTopicOffsets(topic) // KafkaJS deletes only from leaders that it knows already
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '1' }] })
    assert.equal((await admin.fetchTopicOffsets(topic))[0].low, '1')
  },

  async 'access rules are created, described and deleted'() {
    const resource = { resourceType: AclResourceTypes.TOPIC, resourceName: unused('rule') }
    const pattern = { ...resource, resourcePatternType: ResourcePatternTypes.LITERAL }
    const rule = { ...pattern, principal: 'User:bob', host: '*' }
    const whole = { ...rule, operation: AclOperationTypes.READ, permissionType: AclPermissionTypes.ALLOW }
    assert.equal(await admin.createAcls({ acl: [whole] }), true)
    await until('the rule is seen', async () => (await admin.describeAcls(whole)).resources.length === 1)
    const [found] = (await admin.describeAcls(whole)).resources
    assert.equal(found.acls[0].principal, 'User:bob')
    const { filterResponses } = await admin.deleteAcls({ filters: [whole] })
    assert.equal(filterResponses[0].matchingAcls.length, 1)
  },

  async 'a reassignment to where the partition is changes nothing'() {
    const topic = await topicOf(1)
    const { controller } = await admin.describeCluster()
    const partitionAssignment = [{ partition: 0, replicas: [controller] }]
    await admin.alterPartitionReassignments({ topics: [{ topic, partitionAssignment }] })
    const { topics } = await admin.listPartitionReassignments({ topics: [{ topic, partitions: [0] }] })
    assert.deepEqual(topics, [])
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
    assert.deepEqual(got.headers.two.map(String), ['y', 'z'])
  },

  async 'nulls and empty values'() {
    const topic = await topicOf(1)
    await send(topic, [{ key: null, value: null }, { key: '', value: '' }])
    const got = await consume([topic], 2)
    assert.deepEqual(got.map(({ value }) => value && value.length), [null, 0])
  },

  async 'gzip'() {
    const topic = await topicOf(1)
    const messages = Array.from({ length: 500 }, (_, i) => ({ value: `value ${i}` }))
    await send(topic, messages, { compression: CompressionTypes.GZIP })
    assert.deepEqual(text(await consume([topic], 500)), messages.map(({ value }) => value))
  },

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
    const sent = []
    await withProducer({ idempotent: true, maxInFlightRequests: 1 }, async producer => {
      for (let i = 0; i < 30; i++) {
        sent.push(String(i))
        await producer.send({ topic, messages: [{ value: String(i) }] })
      }
    })
    assert.deepEqual(text(await consume([topic], 30)), sent)
  },

  async 'a message that is too large is refused'() {
    const topic = await topicOf(1, [{ name: 'max.message.bytes', value: '1000' }])
    const producer = { retry: { retries: 0 } }
    const large = { topic, messages: [{ value: 'x'.repeat(5000) }] }
    await rejects(withProducer(producer, p => p.send(large)), 'MESSAGE_TOO_LARGE')
  },

  async 'what is committed is read, what is aborted is not'() {
    const topic = await topicOf(1)
    const options = { transactionalId: unused('id'), idempotent: true, maxInFlightRequests: 1 }
    await withProducer(options, async producer => {
      for (const [value, end] of [['aborted', 'abort'], ['committed', 'commit']]) {
        const transaction = await producer.transaction()
        await transaction.send({ topic, messages: [{ value }] })
        await transaction[end]()
      }
    })
    assert.deepEqual(text(await consume([topic], 1)), ['committed'])
    assert.deepEqual(text(await consume([topic], 2, { readUncommitted: true })), ['aborted', 'committed'])
  },

  async 'offsets in a transaction'() {
    const topic = await topicOf(1)
    const groupId = unused('group')
    await send(topic, [{ value: 'a' }, { value: 'b' }])
    const options = { transactionalId: unused('id'), idempotent: true, maxInFlightRequests: 1 }
    const offsets = { consumerGroupId: groupId, topics: [{ topic, partitions: [{ partition: 0, offset: '1' }] }] }
    await withProducer(options, async producer => {
      const transaction = await producer.transaction()
      await transaction.sendOffsets(offsets)
      await transaction.commit()
    })
    const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic] })
    assert.equal(partitions[0].offset, '1')
    assert.deepEqual(text(await consume([topic], 1, { groupId })), ['b'])
  },

  async 'offsets of a group are set, fetched and reset'() {
    const topic = await topicOf(1)
    const groupId = unused('group')
    await send(topic, [{ value: 'a' }, { value: 'b' }, { value: 'c' }])
    await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: '2' }] })
    const read = async () => (await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions[0].offset
    assert.equal(await read(), '2')
    await admin.resetOffsets({ groupId, topic, earliest: true })
    assert.equal(await read(), '-2') // what KafkaJS commits for "earliest"
  },

  async 'a group is listed, described and deleted'() {
    const topic = await topicOf(1)
    const groupId = unused('group')
    const consumer = kafka.consumer({ groupId })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic] })
    const joined = new Promise(resolve => consumer.on(consumer.events.GROUP_JOIN, resolve))
    await consumer.run({ eachMessage: async () => {} })
    const { payload } = await joined
    assert.deepEqual(payload.memberAssignment, { [topic]: [0] })
    assert.ok((await admin.listGroups()).groups.some(group => group.groupId === groupId))
    const [described] = (await admin.describeGroups([groupId])).groups
    assert.deepEqual([described.state, described.members.length], ['Stable', 1])
    await rejects(admin.deleteGroups([groupId]), 'NON_EMPTY_GROUP')
    await consumer.disconnect()
    await admin.deleteGroups([groupId])
    assert.ok(!(await admin.listGroups()).groups.some(group => group.groupId === groupId))
  },

  async 'two members share the partitions, and one takes over'() {
    const topic = await topicOf(4)
    const groupId = unused('group')
    const owned = new Map()
    const start = async name => {
      const consumer = kafka.consumer({ groupId, rebalanceTimeout: 10000, heartbeatInterval: 200 })
      await consumer.connect()
      await consumer.subscribe({ topics: [topic] })
      consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
        owned.set(name, payload.memberAssignment[topic] ?? [])
      })
      await consumer.run({ eachMessage: async () => {} })
      return consumer
    }
    const all = () => [...owned.values()].flat().sort()
    const [first, second] = [await start('first'), await start('second')]
    await until('each has two', () => [...owned.values()].every(p => p.length === 2) && all().length === 4)
    assert.deepEqual(all(), [0, 1, 2, 3])
    await first.disconnect()
    owned.delete('first')
    await until('the second has all', () => owned.get('second').length === 4)
    await second.disconnect()
  },

  async 'a group goes on where it committed'() {
    const topic = await topicOf(1)
    const groupId = unused('group')
    await send(topic, [{ value: 'a' }, { value: 'b' }])
    assert.deepEqual(text(await consume([topic], 2, { groupId })), ['a', 'b'])
    await send(topic, [{ value: 'c' }])
    assert.deepEqual(text(await consume([topic], 1, { groupId })), ['c'])
  },

  async 'offsets are committed by hand'() {
    const topic = await topicOf(1)
    const groupId = unused('group')
    await send(topic, [{ value: 'a' }, { value: 'b' }])
    const consumer = kafka.consumer({ groupId })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    const seen = new Promise((resolve, reject) => {
      const each = async ({ message }) => {
        if (message.offset !== '0') return
        const offsets = [{ topic, partition: 0, offset: '1', metadata: 'by hand' }]
        await consumer.commitOffsets(offsets).then(resolve, reject)
      }
      consumer.run({ autoCommit: false, eachMessage: each }).catch(reject)
    })
    await seen
    await consumer.disconnect()
    const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic] })
    assert.deepEqual([partitions[0].offset, partitions[0].metadata], ['1', 'by hand'])
  },

  async 'whole batches'() {
    const topic = await topicOf(1)
    await send(topic, [{ value: 'a' }, { value: 'b' }, { value: 'c' }])
    const got = []
    const consumer = kafka.consumer({ groupId: unused('group') })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
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
    const consumer = kafka.consumer({ groupId: unused('group') })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic] })
    await consumer.run({ eachMessage: async ({ message }) => void got.push(message.value.toString()) })
    consumer.seek({ topic, partition: 0, offset: '1' })
    await until('two came', () => got.length === 2)
    consumer.pause([{ topic }])
    assert.deepEqual(consumer.paused(), [{ topic, partitions: [0] }])
    await send(topic, [{ value: 'd' }])
    consumer.resume([{ topic }])
    await until('the last came', () => got.length === 3)
    await consumer.disconnect()
    assert.deepEqual(got, ['b', 'c', 'd'])
  },

  async 'topics by a regular expression'() {
    const topic = await topicOf(1)
    await send(topic, [{ value: 'by name' }])
    assert.deepEqual(text(await consume([new RegExp(`^${topic}$`)], 1)), ['by name'])
  },

  async 'a topic that is not there'() {
    const consumer = kafka.consumer({ groupId: unused('group'), retry: { retries: 0 } })
    await consumer.connect()
    const asked = admin.fetchTopicMetadata({ topics: [unused('nowhere')] })
    await rejects(asked, 'UNKNOWN_TOPIC_OR_PARTITION')
    await consumer.disconnect()
  },

  async 'a full partition in small fetches'() {
    const topic = await topicOf(1)
    const messages = Array.from({ length: 200 }, (_, i) => ({ value: `${i} `.padEnd(1000, 'x') }))
    await send(topic, messages)
    const got = await consume([topic], 200, { maxBytesPerPartition: 2000, minBytes: 1, maxBytes: 5000 })
    assert.deepEqual(text(got), messages.map(({ value }) => value))
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
