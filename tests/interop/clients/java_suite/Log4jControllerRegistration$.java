package kafka.utils;

/** Of Kafka 4.3.1, whose {@code kafka.utils.TestUtils} names it when it is loaded; 4.4.0 has it no more. */
public final class Log4jControllerRegistration$ {
    public static final Log4jControllerRegistration$ MODULE$ = new Log4jControllerRegistration$();

    private Log4jControllerRegistration$() {
    }
}
