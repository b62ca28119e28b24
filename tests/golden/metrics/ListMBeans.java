import java.util.*;
import javax.management.*;
import javax.management.remote.*;
public class ListMBeans {
  public static void main(String[] a) throws Exception {
    JMXConnector c = JMXConnectorFactory.connect(new JMXServiceURL("service:jmx:rmi:///jndi/rmi://127.0.0.1:" + a[0] + "/jmxrmi"));
    MBeanServerConnection s = c.getMBeanServerConnection();
    TreeSet<String> out = new TreeSet<>();
    for (ObjectName n : s.queryNames(null, null)) {
      String d = n.getDomain();
      if (d.startsWith("java") || d.startsWith("JMI") || d.startsWith("com.sun") || d.startsWith("jdk")) continue;
      for (MBeanAttributeInfo i : s.getMBeanInfo(n).getAttributes()) {
        Object v; try { v = s.getAttribute(n, i.getName()); } catch (Exception e) { v = e; }
        out.add(n + "\t" + i.getName() + "\t" + (v == null ? "null" : v.getClass().getSimpleName()) + "\t" + v);
      }
    }
    for (String o : out) System.out.println(o);
  }
}
