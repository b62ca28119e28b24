import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupTargetAssignmentMemberValue;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;
import org.apache.kafka.coordinator.group.modern.TopicIds;

/**
 * Asks Kafka's assignors. Lines in: "topic NAME HIGH LOW PARTITIONS", "member ID INSTANCE|- NAMES|-",
 * "target ID NAME PARTITIONS", "assign uniform|range true|false" (whether all subscriptions are alike). Out, for each
 * "assign": "ID NAME PARTITIONS" for each topic of each member in the order of Kafka's maps, then "end".
 */
public class Assignors {
    private static final Map<String, Uuid> IDS = new HashMap<>();
    private static final Map<Uuid, String> NAMES = new HashMap<>();
    private static final Map<Uuid, Integer> COUNTS = new HashMap<>();
    private static final Map<String, Optional<String>> INSTANCES = new HashMap<>();
    private static final Map<String, Set<String>> WANTED = new HashMap<>();
    private static final List<String> MEMBERS = new ArrayList<>();
    private static final Map<String, List<ConsumerGroupTargetAssignmentMemberValue.TopicPartition>> TARGETS = new HashMap<>();

    private static final TopicIds.TopicResolver RESOLVER = new TopicIds.TopicResolver() {
        public CoordinatorMetadataImage image() {
            return CoordinatorMetadataImage.EMPTY;
        }

        public String name(Uuid id) {
            return NAMES.get(id);
        }

        public Uuid id(String name) {
            return IDS.get(name);
        }

        public void clear() {
        }
    };

    private static final SubscribedTopicDescriber DESCRIBER = new SubscribedTopicDescriber() {
        public int numPartitions(Uuid id) {
            return COUNTS.getOrDefault(id, -1);
        }

        public Set<String> racksForPartition(Uuid id, int partition) {
            return Set.of();
        }
    };

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "topic" -> {
                    Uuid id = new Uuid(Long.parseLong(words[2]), Long.parseLong(words[3]));
                    IDS.put(words[1], id);
                    NAMES.put(id, words[1]);
                    COUNTS.put(id, Integer.parseInt(words[4]));
                }
                case "member" -> {
                    MEMBERS.add(words[1]);
                    INSTANCES.put(words[1], words[2].equals("-") ? Optional.empty() : Optional.of(words[2]));
                    WANTED.put(words[1], words[3].equals("-") ? Set.of() : new HashSet<>(List.of(words[3].split(","))));
                }
                case "target" -> TARGETS.computeIfAbsent(words[1], __ -> new ArrayList<>()).add(
                    new ConsumerGroupTargetAssignmentMemberValue.TopicPartition().setTopicId(IDS.get(words[2]))
                        .setPartitions(Arrays.stream(words[3].split(",")).map(Integer::valueOf).toList()));
                default -> assign(words[1], Boolean.parseBoolean(words[2]));
            }
        }
    }

    private static void assign(String name, boolean alike) {
        Map<String, MemberSubscriptionAndAssignmentImpl> specs = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        for (String member : MEMBERS) {
            Assignment target = Assignment.fromRecord(new ConsumerGroupTargetAssignmentMemberValue()
                .setTopicPartitions(TARGETS.getOrDefault(member, List.of())));
            target.partitions().forEach((id, partitions) -> partitions.forEach(
                partition -> owners.computeIfAbsent(id, __ -> new HashMap<>()).put(partition, member)));
            specs.put(member, new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), INSTANCES.get(member), new TopicIds(WANTED.get(member), RESOLVER), target));
        }
        PartitionAssignor assignor = name.equals("range") ? new RangeAssignor() : new UniformAssignor();
        SubscriptionType type = alike ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        Map<String, MemberAssignment> found = assignor.assign(new GroupSpecImpl(specs, type, owners), DESCRIBER).members();
        StringBuilder out = new StringBuilder();
        for (String member : specs.keySet()) {
            MemberAssignment got = found.get(member);
            if (got != null) {
                got.partitions().forEach((id, partitions) -> out.append(member).append(' ').append(NAMES.get(id)).append(' ')
                    .append(partitions.stream().map(String::valueOf).collect(Collectors.joining(","))).append('\n'));
            }
        }
        System.out.print(out.append("end\n"));
        IDS.clear();
        NAMES.clear();
        COUNTS.clear();
        INSTANCES.clear();
        WANTED.clear();
        MEMBERS.clear();
        TARGETS.clear();
    }
}
