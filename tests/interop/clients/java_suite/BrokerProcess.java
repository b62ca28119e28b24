package org.apache.kafka.common.test.junit;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.List;
import java.util.function.BooleanSupplier;
import java.util.function.Function;
import java.util.function.IntSupplier;

import kafka.server.KafkaBroker;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.metadata.MetadataCache;
import org.opentest4j.TestAbortedException;

/**
 * A broker's process as tests see one of Kafka's brokers: they stop it, start it and ask whether it is there.
 *
 * <p>Whatever else they ask of it aborts the test.
 */
final class BrokerProcess {
    private BrokerProcess() {
    }

    /** The broker {@code id} of a cluster at {@code port}; {@code aborted} makes the error for what it has not. */
    static KafkaBroker of(
            ClusterInstance cluster,
            int id,
            IntSupplier port,
            BooleanSupplier isRunning,
            Function<String, TestAbortedException> aborted) {
        InvocationHandler cache = (self, method, arguments) -> {
            if (method.getName().equals("getAliveBrokerNodes")) {
                return isRunning.getAsBoolean() ? List.of(new Node(id, "localhost", port.getAsInt())) : List.of();
            }
            return ofObject(self, method, arguments, aborted);
        };
        return as(KafkaBroker.class, (self, method, arguments) -> {
            switch (method.getName()) {
                case "shutdown":
                    cluster.shutdownBroker(id);
                    return null;
                case "awaitShutdown":
                    return null; // who shuts it down waits for it
                case "isShutdown":
                    return !isRunning.getAsBoolean();
                case "startup":
                    cluster.startBroker(id);
                    return null;
                case "metadataCache":
                    return as(MetadataCache.class, cache);
                default:
                    return ofObject(self, method, arguments, aborted);
            }
        });
    }

    private static <T> T as(Class<T> type, InvocationHandler handler) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
    }

    private static Object ofObject(
            Object self, Method method, Object[] arguments, Function<String, TestAbortedException> aborted) {
        switch (method.getName()) {
            case "equals":
                return self == arguments[0];
            case "hashCode":
                return System.identityHashCode(self);
            case "toString":
                return "a broker's process";
            default:
                throw aborted.apply("looks into the classes of Kafka's broker");
        }
    }
}
